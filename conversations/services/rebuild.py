"""Rebuild rows from the files under `agents/` when the database was lost (architecture §3).

What exists in the database is left alone, so it may be run at any time; one corrupt file does not hide
the others: it is reported and skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import DatabaseError, transaction

from agents.actor import first_user
from agents.models import Agent, AgentTag, AgentTool, Tool, User, default_souveraine
from agents.services.memory import agents_dir, sync_blocks
from agents.services.portable import write_agent_json
from conversations.models import Conversation, Message
from souveraine import ids
from souveraine.errors import SouveraineError

ERRORS = (OSError, ValueError, KeyError, TypeError, SouveraineError, DatabaseError)
BATCH = 500


@dataclass
class Report:
    """What was rebuilt, and what could not be."""

    agents: int = 0
    conversations: int = 0
    messages: int = 0
    problems: list[str] = field(default_factory=list)


def rebuild_index() -> Report:
    """Add the agents and conversations that have files but no rows. Idempotent."""
    report = Report()
    for folder in sorted(agents_dir().glob("*")):
        if folder.name.startswith(".") or not (folder / "agent.json").is_file():
            continue
        try:
            agent, is_new = _rebuild_agent(folder)
        except ERRORS as exc:
            report.problems.append(f"{folder / 'agent.json'}: {exc!r}")
            continue
        report.agents += is_new
        _rebuild_conversations(agent, folder, report)
    return report


def _owner(document: dict[str, Any]) -> User:
    found = User.objects.filter(pk=document["owner"]).first() if document.get("owner") else None
    return found or first_user()


def _rebuild_agent(folder: Path) -> tuple[Agent, bool]:
    document = json.loads((folder / "agent.json").read_text(encoding="utf-8"))
    agent_id = ids.parse(ids.AGENT, folder.name)
    existing = Agent.objects.filter(pk=agent_id).first()
    if existing is not None:
        return existing, False
    llm, memory = document.get("llm_config") or {}, document.get("memory") or {}
    owner = _owner(document)
    with transaction.atomic():
        agent = Agent.objects.create(
            pk=agent_id,
            owner=owner,
            created_by=owner.pk,
            name=document["name"],
            description=document.get("description"),
            created_at=datetime.fromisoformat(document["created_at"]),
            updated_at=datetime.fromisoformat(document["updated_at"]),
            agent_type=document.get("agent_type") or "letta_v1_agent",
            system=document.get("system") or "",
            model=llm["model"],
            context_window=llm.get("context_window") or memory.get("context_window") or 128_000,
            llm_config={k: v for k, v in llm.items() if k not in ("model", "context_window")},
            model_settings=document.get("model_settings") or {},
            tool_rules=document.get("tool_rules") or [],
            metadata=document.get("metadata"),
            git_enabled=memory.get("git_enabled", True),
            auto_commit=memory.get("auto_commit", True),
            souveraine={**default_souveraine(), **(document.get("_souveraine") or {})},
        )
        tags = dict.fromkeys(document.get("tags") or [])
        AgentTag.objects.bulk_create(
            AgentTag(agent=agent, tag=t, position=i) for i, t in enumerate(tags)
        )
        found = {t.name: t for t in Tool.objects.filter(name__in=document.get("tools") or [])}
        named = [found[name] for name in document.get("tools") or [] if name in found]
        AgentTool.objects.bulk_create(
            AgentTool(agent=agent, tool=t, position=i) for i, t in enumerate(named)
        )
    sync_blocks(agent)
    write_agent_json(agent)
    return agent, True


def _rebuild_conversations(agent: Agent, folder: Path, report: Report) -> None:
    for path in sorted((folder / "conversations").glob("conv-*.json")):
        try:
            added = _rebuild_conversation(agent, path)
        except ERRORS as exc:
            report.problems.append(f"{path}: {exc!r}")
            continue
        if added is not None:
            report.conversations += 1
            report.messages += added


def _rebuild_conversation(agent: Agent, path: Path) -> int | None:
    """Return how many messages were added, None when the conversation is there already."""
    document = json.loads(path.read_text(encoding="utf-8"))
    conversation_id = ids.parse(ids.CONVERSATION, document["id"])
    if Conversation.objects.filter(pk=conversation_id).exists():
        return None
    counters = document.get("_souveraine") or {}
    inherited, started = document.get("inherited") or [], document.get("window_start") or 0
    with transaction.atomic():
        conversation = Conversation.objects.create(
            pk=conversation_id,
            agent=agent,
            is_default=bool(document.get("is_default")),
            created_by=agent.owner_id,
            summary=document.get("summary"),
            created_at=datetime.fromisoformat(document["created_at"]),
            deleted_at=datetime.fromisoformat(document["deleted_at"])
            if document.get("deleted_at")
            else None,
            inherited=inherited,
            last_sequence=inherited[-1]["last"] if inherited else 0,
            window_start=started,
            model=document.get("model"),
            model_settings=document.get("model_settings"),
            context_window=document.get("context_window_limit"),
            description=document.get("description"),
            archived_at=datetime.fromisoformat(document["archived_at"])
            if document.get("archived_at")
            else None,
            turn_count=counters.get("turn_count") or 0,
            message_count=counters.get("message_count") or 0,
            context_tokens=counters.get("context_tokens") or 0,
            context_pressure=counters.get("context_pressure") or 0.0,
        )
        rows = [
            _message(conversation, line) for line in _lines(path.with_suffix(".messages.jsonl"))
        ]
        Message.objects.bulk_create(rows, batch_size=BATCH)
        if rows:
            conversation.last_sequence = max(conversation.last_sequence, rows[-1].sequence)
            conversation.last_message_at = rows[-1].created_at
            compactions = [row.compaction for row in rows if row.compaction]
            conversation.window_start = compactions[-1]["window_start"] if compactions else started
            conversation.save(update_fields=["last_sequence", "last_message_at", "window_start"])
    return len(rows)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a mirror; what a crash left half-written at the end is passed over."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def _message(conversation: Conversation, line: dict[str, Any]) -> Message:
    return Message(
        id=ids.parse(ids.MESSAGE, line["id"]),
        conversation=conversation,
        agent_id=conversation.agent_id,
        sequence=line["sequence"],
        role=line["role"],
        text=line.get("text") or "",
        content=line.get("content"),
        reasoning=line.get("reasoning") or "",
        tool_calls=line.get("tool_calls") or [],
        tool_call_id=line.get("tool_call_id") or "",
        name=line.get("name"),
        status=line.get("status") or "",
        otid=line.get("otid"),
        model=line.get("model"),
        compaction=line.get("compaction"),
        created_at=datetime.fromisoformat(line["created_at"]),
    )
