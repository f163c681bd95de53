"""agent.json: the portable state in the seed's shape, rewritten atomically after each change."""

from __future__ import annotations

import json
import logging
import os
import secrets
from pathlib import Path
from typing import Any

from agents.models import Agent, Block
from agents.selectors import agent_tags, attached_blocks, attached_tools
from agents.services.memory import agent_dir

logger = logging.getLogger(__name__)


def iso(value: Any) -> str:
    """Write a datetime as RFC 3339 in UTC with `Z`."""
    return value.isoformat().replace("+00:00", "Z")  # type: ignore[no-any-return]


def seed_blocks(blocks: list[Block]) -> list[dict[str, Any]]:
    """Return `memory_blocks` as the seed has them: label, value, limit."""
    return [{"label": b.label, "value": b.value, "limit": b.limit} for b in blocks]


def agent_document(agent: Agent) -> dict[str, Any]:
    """Return the content of agent.json (seed 004 "Agent State")."""
    blocks, tools = attached_blocks(agent), attached_tools(agent)
    return {
        "id": f"agent-{agent.pk}",
        "name": agent.name,
        "description": agent.description,
        "created_at": iso(agent.created_at),
        "updated_at": iso(agent.updated_at),
        "owner": str(agent.owner_id),
        "agent_type": agent.agent_type,
        "system": agent.system,
        "llm_config": {
            **agent.llm_config,
            "model": agent.model,
            "context_window": agent.context_window,
        },
        "model_settings": agent.model_settings,
        "memory": {
            "git_enabled": agent.git_enabled,
            "auto_commit": agent.auto_commit,
            "context_window": agent.context_window,
        },
        "memory_blocks": seed_blocks(blocks),
        "tools": [tool.name for tool in tools],
        "tool_rules": agent.tool_rules,
        "tags": agent_tags(agent),
        "metadata": agent.metadata,
        "_souveraine": agent.souveraine,
    }


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write JSON atomically: a reader or a crash sees the old or the new file, never half of one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_agent_json(agent: Agent, folder: Path | None = None) -> None:
    """Rewrite agent.json. A folder that is gone (agent deleted meanwhile) is no error."""
    target = folder or agent_dir(agent)
    if not target.is_dir():
        return
    try:
        write_json(target / "agent.json", agent_document(agent))
    except OSError as exc:  # a copy of the rows; the next change writes it again
        logger.warning("event=agent_json_not_written agent_id=agent-%s error=%r", agent.pk, exc)
