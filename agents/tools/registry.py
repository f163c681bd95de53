"""The built-in tools by name. Other apps add theirs with `register`, so `agents` imports none of them."""

from __future__ import annotations

from agents.models import Tool
from agents.tools.base import BuiltinTool

_TOOLS: dict[str, BuiltinTool] = {}

BASE_TOOLS = ("conversation_search", "memory_insert", "memory_replace")
MULTI_AGENT_TOOLS = (
    "send_message_to_agent_async",
    "send_message_to_agent_and_wait_for_reply",
    "send_message_to_agents_matching_tags",
)


def register(*tools: BuiltinTool) -> None:
    """Add built-in tools. Registering the same tool again changes nothing."""
    for tool in tools:
        _TOOLS[tool.name] = tool


def find(name: str) -> BuiltinTool | None:
    """Return the built-in tool of that name."""
    return _TOOLS.get(name)


def all_tools() -> list[BuiltinTool]:
    """Return all built-in tools, by name."""
    return [_TOOLS[name] for name in sorted(_TOOLS)]


def store_builtin_tools() -> None:
    """Write the registry into the Tool table, keeping ids. Runs after each migration; idempotent."""
    for tool in all_tools():
        Tool.objects.update_or_create(
            owner=None,
            name=tool.name,
            defaults={
                "tool_type": tool.tool_type,
                "description": tool.description,
                "json_schema": tool.json_schema,
                "tags": list(tool.tags or (tool.tool_type,)),
                "default_requires_approval": True if tool.requires_approval else None,
            },
        )
