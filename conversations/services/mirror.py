"""The conversation's files: metadata as JSON, messages as append-only JSONL (architecture §3, §4).

Never read back except by import. `mirrored` in the metadata says up to which sequence the JSONL goes, but
the file itself is asked: its last line's sequence. So a crash between the two repeats nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from agents.services.memory import agents_dir
from agents.services.portable import write_json
from conversations.models import Conversation, Message
from conversations.wire.states import conversation_state

TAIL_BYTES = 1 << 20


def _folder(conversation: Conversation) -> Path:
    return agents_dir() / str(conversation.agent_id) / "conversations"


def write_metadata(conversation: Conversation) -> None:
    """Rewrite `<conversation>.json` atomically. A deleted agent's folder is no error."""
    folder = _folder(conversation)
    if not folder.parent.is_dir():
        return
    folder.mkdir(exist_ok=True)
    document = {
        **conversation_state(conversation),
        "is_default": conversation.is_default,
        "inherited": conversation.inherited,
        "window_start": conversation.window_start,
        "deleted_at": conversation.deleted_at.isoformat() if conversation.deleted_at else None,
    }
    write_json(folder / f"conv-{conversation.pk}.json", document)


def _line(message: Message) -> dict[str, Any]:
    return {
        "sequence": message.sequence,
        "id": f"message-{message.id}",
        "role": message.role,
        "created_at": message.created_at.isoformat(),
        "text": message.text,
        "content": message.content,
        "reasoning": message.reasoning or None,
        "tool_calls": message.tool_calls or None,
        "tool_call_id": message.tool_call_id or None,
        "name": message.name,
        "status": message.status or None,
        "otid": message.otid,
        "model": message.model,
        "run_id": f"run-{message.run_id}" if message.run_id else None,
        **({"compaction": message.compaction} if message.compaction else {}),
    }


def _last_mirrored(path: Path) -> int:
    """Return the sequence of the last whole line, cutting off what a crash left half-written."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    span = TAIL_BYTES
    while True:
        with path.open("rb") as file:
            file.seek(max(0, size - span))
            tail = file.read()
        end = tail.rfind(b"\n")
        start = tail.rfind(b"\n", 0, end) if end > 0 else -1
        if start >= 0 or span >= size:
            break
        span *= 8
    if end < len(tail) - 1:
        os.truncate(path, size - (len(tail) - 1 - end))
    if end < 0:
        return 0
    return int(json.loads(tail[start + 1 : end])["sequence"])


def append_messages(conversation: Conversation) -> int:
    """Append the messages that the JSONL does not have yet; returns how many. Idempotent.

    Called by the one owner of the conversation's live run, after its commit.
    """
    folder = _folder(conversation)
    if not folder.parent.is_dir():
        return 0
    folder.mkdir(exist_ok=True)
    path = folder / f"conv-{conversation.pk}.messages.jsonl"
    rows = list(
        Message.objects.filter(
            conversation=conversation, sequence__gt=_last_mirrored(path)
        ).order_by("sequence")[:5000]
    )
    if rows:
        text = "".join(json.dumps(_line(row), ensure_ascii=False) + "\n" for row in rows)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    return len(rows)
