"""Messages of an agent file as rows, and rows as messages of an agent file.

Older agents spoke by calling `send_message` and packed each text in JSON; both are undone, since here an
agent speaks in plain text, and a history full of calls would teach it otherwise.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from conversations.agent_files.document import Entity, listed
from conversations.lineage import FIRST_SAID
from conversations.models import Message
from conversations.services.window import Compaction

NAME_CHARS = 255
ROLES = ("system", "user", "assistant", "tool", "function", "approval", "summary")
REASONING = ("reasoning", "summarized_reasoning", "redacted_reasoning", "omitted_reasoning")
SPEAKING = "send_message"
GATE = "approval"
EXTRA = "_souveraine"  # what only this server knows of a message


@dataclass
class History:
    """The rows of one conversation, without the system message. `window_start` is where the prompt begins."""

    rows: list[Message] = field(default_factory=list)
    window_start: int = 0
    skipped: int = 0


def read_history(items: Iterable[Any], in_context: Iterable[Any], *, is_old_type: bool) -> History:
    """Return unsaved rows, in order, without their conversation and agent.

    `is_old_type`: of an agent whose text beside a tool call is what it thought. Items that are no messages are
    counted as skipped.
    """
    history = History()
    wanted = {text for text in in_context if isinstance(text, str)}
    spoken: set[str] = set()  # ids of send_message calls that became text
    in_view: list[int] = []
    for number, item in enumerate(items):
        if not isinstance(item, dict) or item.get("role") not in ROLES:
            history.skipped += 1
            continue
        if number == 0 and item["role"] == "system":
            continue  # the compiled prompt, which is compiled anew
        for row in _rows_of(item, spoken, is_old_type=is_old_type):
            row.sequence = FIRST_SAID + len(history.rows)
            history.rows.append(row)
            if str(item.get("id")) in wanted:
                in_view.append(row.sequence)
    if wanted:
        history.window_start = min(in_view, default=FIRST_SAID + len(history.rows))
    return history


def _rows_of(item: Entity, spoken: set[str], *, is_old_type: bool) -> list[Message]:
    role = item["role"]
    if role in ("tool", "function"):
        return _returns(item, spoken)
    if role == "assistant" or (role == "approval" and item.get("tool_calls")):
        return [_answer(item, spoken, is_old_type=is_old_type)]
    row = _base(item)
    row.role = Message.Role(role)
    if role == "approval":
        keys = ("approvals", "approve", "approval_request_id")
        row.approvals = {
            **{key: item.get(key) for key in keys},
            "reason": item.get("denial_reason"),
        }
        return [row]
    row.text, row.content = _content(item)
    row.text = _unpacked(row.text, "user_message") if role == "user" else row.text
    if role == "summary":
        row.compaction = _compaction(_extra(item).get("compaction"))
    return [row]


def _compaction(given: Any) -> Entity | None:
    """Return what a summary stands for, when the file has all of it in the right types."""
    if not isinstance(given, dict) or set(given) != {f.name for f in fields(Compaction)}:
        return None
    texts = [given.pop(name) for name in ("event_id", "trigger")]
    numbers = list(given.values())
    given |= {"event_id": texts[0], "trigger": texts[1]}
    is_sound = all(isinstance(t, str) for t in texts) and all(type(n) is int for n in numbers)
    return given if is_sound else None


def _base(item: Entity) -> Message:
    return Message(
        otid=_short(item.get("otid")),
        name=_short(item.get("name")),
        sender_id=_short(item.get("sender_id")),
        created_at=moment_of(item.get("created_at") or item.get("date")),
    )


def _extra(item: Entity) -> Entity:
    found = item.get(EXTRA)
    return found if isinstance(found, dict) else {}


def _short(value: Any) -> str | None:
    return value[:NAME_CHARS] if isinstance(value, str) and value else None


def moment_of(value: Any) -> datetime:
    """Return the time that a file gives, in UTC when it says no zone, else the present."""
    try:
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):  # the last: outside of all years in UTC
        return timezone.now()


def _parts(item: Entity) -> list[Entity]:
    content = item.get("content")
    if content is None:
        content = item.get("text")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in listed(content) if isinstance(part, dict)]


def _text_of(parts: Iterable[Entity], *kinds: str, key: str = "text") -> str:
    texts = (part.get(key) for part in parts if part.get("type") in kinds)
    return "\n".join(text for text in texts if isinstance(text, str))


def _content(item: Entity) -> tuple[str, list[Entity] | None]:
    """Return the text, and the parts when they are more than one text."""
    parts = [
        part
        for part in _parts(item)
        if (part.get("type") == "text" and isinstance(part.get("text"), str))
        or (part.get("type") == "image" and isinstance(part.get("source"), dict))
    ]
    is_plain = len(parts) <= 1 and all(part["type"] == "text" for part in parts)
    return _text_of(parts, "text"), None if is_plain else parts


def _unpacked(text: str, kind: str) -> str:
    """Return the text inside of {"type": kind, "message": …}, in which older servers packed it."""
    if not text.startswith("{"):
        return text
    try:
        packed = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_packed = isinstance(packed, dict) and packed.get("type") == kind
    return packed["message"] if is_packed and isinstance(packed.get("message"), str) else text


def _calls(item: Entity, parts: list[Entity]) -> list[Entity]:
    calls = []
    for call in listed(item.get("tool_calls")):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            calls.append((call.get("id"), function["name"], function.get("arguments")))
    if not calls:
        calls = [
            (part.get("id"), part["name"], part.get("input"))
            for part in parts
            if part.get("type") == "tool_call" and isinstance(part.get("name"), str)
        ]
    return [
        {
            "id": str(call_id or f"call_{uuid.uuid4().hex[:24]}")[:NAME_CHARS],
            "name": name[:NAME_CHARS],
            "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments or {}),
        }
        for call_id, name, arguments in calls
    ]


def _answer(item: Entity, spoken: set[str], *, is_old_type: bool) -> Message:
    row, parts, extra = _base(item), _parts(item), _extra(item)
    row.role, row.model = Message.Role.ASSISTANT, _short(item.get("model"))
    row.text, row.content = _content(item)
    row.reasoning = _text_of(parts, *REASONING, key="reasoning")
    row.status = "partial" if extra.get("partial") is True else ""
    if not extra.get("said"):
        row.otid = None  # here it would mean that a client has said it
    calls = _calls(item, parts)
    if is_old_type and calls and row.text:
        row.reasoning, row.text, row.content = row.text, "", None
    told = _spoken(calls)
    if told is not None:
        spoken.add(calls[0]["id"])
        row.text, calls = told, []
    is_gated = item["role"] == "approval"
    row.tool_calls = [{**call, "gate": GATE} for call in calls] if is_gated else calls
    return row


def _spoken(calls: list[Entity]) -> str | None:
    """Return what an older agent said by its one call of `send_message`."""
    if len(calls) != 1 or calls[0]["name"] != SPEAKING:
        return None
    try:
        arguments = json.loads(calls[0]["arguments"])
    except (ValueError, RecursionError):
        return None
    told = arguments.get("message") if isinstance(arguments, dict) else None
    return told if isinstance(told, str) and told.strip() else None


def _returns(item: Entity, spoken: set[str]) -> list[Message]:
    returns = [r for r in listed(item.get("tool_returns")) if isinstance(r, dict)]
    if not returns:
        returns = [{"tool_call_id": item.get("tool_call_id")}]
    rows = []
    for returned in returns:
        call_id = str(returned.get("tool_call_id") or item.get("tool_call_id") or "")[:NAME_CHARS]
        if call_id in spoken:
            continue
        row = _base(item)
        row.role, row.otid, row.tool_call_id = Message.Role.TOOL, None, call_id
        row.text, row.status = _returned(item, returned)
        row.stdout, row.stderr = _lines(returned.get("stdout")), _lines(returned.get("stderr"))
        rows.append(row)
    return rows


def _lines(given: Any) -> list[str] | None:
    return [line for line in given if isinstance(line, str)] if isinstance(given, list) else None


def _returned(item: Entity, returned: Entity) -> tuple[str, str]:
    """Return text and status; older servers have them only packed in the message's text."""
    status = "error" if returned.get("status") == "error" else "success"
    given = returned.get("func_response")
    if isinstance(given, str):
        return given, status
    if isinstance(given, list):
        return _text_of([p for p in given if isinstance(p, dict)], "text"), status
    text = _text_of(_parts(item), "text")
    try:
        packed = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        packed = None
    if isinstance(packed, dict) and isinstance(packed.get("message"), str) and "status" in packed:
        return packed["message"], "success" if packed["status"] == "OK" else "error"
    return text, status


def message_entity(row: Message, message_id: str, agent_id: str) -> Entity:
    """Return the row as a message of an agent file."""
    is_approval = row.role == Message.Role.APPROVAL or any(c.get("gate") for c in row.tool_calls)
    decided = row.approvals or {}
    calls = [
        {
            "id": call["id"],
            "function": {"arguments": call["arguments"], "name": call["name"]},
            "type": "function",
        }
        for call in row.tool_calls
    ]
    extra = _extra_of(row)
    return {
        "type": "message",
        "otid": row.otid,
        "group_id": None,
        "role": "approval" if is_approval else row.role,
        "content": _content_of(row),
        "name": row.name,
        "sender_id": row.sender_id,
        "batch_item_id": None,
        "id": message_id,
        "model": row.model,
        "agent_id": agent_id,
        "tool_calls": calls or None,
        "tool_call_id": row.tool_call_id or None,
        "tool_returns": [_return_of(row)] if row.role == Message.Role.TOOL else [],
        "created_at": row.created_at.isoformat(),
        "approve": decided.get("approve"),
        "approval_request_id": decided.get("approval_request_id"),
        "denial_reason": decided.get("reason"),
        "approvals": decided.get("approvals") or [],
        **({EXTRA: extra} if extra else {}),
    }


def _extra_of(row: Message) -> Entity:
    extra: Entity = {}
    if row.role == Message.Role.ASSISTANT and row.is_said:
        extra["said"] = True
    if row.status == "partial":
        extra["partial"] = True
    if row.compaction:
        extra["compaction"] = row.compaction
    return extra


def _return_of(row: Message) -> Entity:
    return {
        "tool_call_id": row.tool_call_id,
        "status": row.status or "success",
        "stdout": row.stdout,
        "stderr": row.stderr,
        "func_response": row.text,
    }


def _content_of(row: Message) -> list[Entity]:
    parts: list[Entity] = []
    if row.reasoning:
        reasoning = {"type": "reasoning", "is_native": True, "reasoning": row.reasoning}
        parts.append({**reasoning, "signature": None})
    if row.content:
        return [*parts, *row.content]
    if row.text:
        parts.append({"type": "text", "text": row.text, "signature": None})
    return parts
