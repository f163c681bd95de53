"""The single-agent form of 2025 (which the old server came to refuse) as the form with several entities."""

from __future__ import annotations

from typing import Any

Entity = dict[str, Any]
AGENT_ID = "agent-0"


def is_single_agent(document: Entity) -> bool:
    """Tell whether the document is one agent, with its blocks and tools inside."""
    return "agents" not in document and (
        "core_memory" in document
        or "in_context_message_indices" in document
        or ("name" in document and "messages" in document)
    )


def from_single_agent(document: Entity) -> Entity:
    """Return the document in the form with several entities."""
    agent = {k: v for k, v in document.items() if k not in ("core_memory", "tools", "messages")}
    blocks = _numbered(document.get("core_memory") or document.get("blocks"), "block")
    tools = _numbered(document.get("tools"), "tool")
    messages = _numbered(document.get("messages"), "message")
    indices = document.get("in_context_message_indices")
    if indices is None:  # a version of the form said it the other way round
        inside = [i for i, message in enumerate(messages) if message.get("in_context", True)]
        indices = inside
    agent |= {
        "id": AGENT_ID,
        "block_ids": [block["id"] for block in blocks],
        "tool_ids": [tool["id"] for tool in tools],
        "messages": messages,
        "in_context_message_ids": [
            f"message-{i}" for i in indices if isinstance(i, int) and not isinstance(i, bool)
        ],
        "tags": [_inner(tag, "tag") for tag in _list(document.get("tags"))],
        "metadata": document.get("metadata_", document.get("metadata")),
        "secrets": _secrets(document.get("tool_exec_environment_variables")),
        "tool_exec_environment_variables": None,
    }
    return {"agents": [agent], "blocks": blocks, "tools": tools}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _numbered(value: Any, prefix: str) -> list[Entity]:
    entities = [item for item in _list(value) if isinstance(item, dict)]
    return [{**item, "id": f"{prefix}-{number}"} for number, item in enumerate(entities)]


def _inner(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else item


def _secrets(value: Any) -> Any:
    """Return {key: value}; the form has a list of objects."""
    if not isinstance(value, list):
        return value
    return {
        item["key"]: item.get("value") or ""
        for item in value
        if isinstance(item, dict) and isinstance(item.get("key"), str)
    }
