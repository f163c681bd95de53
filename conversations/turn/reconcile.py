"""Make a run's stream agree with its rows after a crash (architecture §5, end).

What was streamed but never stored is retracted, what was stored but not (wholly) streamed is added.
"""

from __future__ import annotations

import json
from typing import Any

from django.utils import timezone

from conversations.models import Message, Run
from conversations.turn.database import run_db
from conversations.turn.emitter import Emitter
from conversations.wire import frames
from souveraine.events.log import read_async

PAGE = 2000


async def _streamed(run: Run) -> dict[tuple[str, str], str]:
    """Return what the log holds: {(message id, kind): concatenated text}, retracted ones left out."""
    found: dict[tuple[str, str], str] = {}
    retracted: set[str] = set()
    after = 0
    while True:
        events = await read_async(run.pk, after, PAGE)
        for event in events:
            if event.kind == "frame":
                _take(json.loads(event.data), found, retracted)
        if len(events) < PAGE:
            return {key: text for key, text in found.items() if key[0] not in retracted}
        after = events[-1].seq


def _take(frame: dict[str, Any], found: dict[tuple[str, str], str], retracted: set[str]) -> None:
    kind, message_id = frame["message_type"], frame.get("id")
    if message_id is None:
        return
    if kind == "souveraine_retracted":
        retracted.add(message_id)
        return
    found[message_id, kind] = found.get((message_id, kind), "") + _text_of(frame)


def _text_of(frame: dict[str, Any]) -> str:
    kind = frame["message_type"]
    if kind == "assistant_message":
        return (
            frame["content"] if isinstance(frame["content"], str) else json.dumps(frame["content"])
        )
    if kind == "reasoning_message":
        return str(frame["reasoning"])
    if kind == "tool_call_message":
        calls = frame["tool_calls"]
        return "".join(
            c.get("arguments") or "" for c in (calls if isinstance(calls, list) else [calls])
        )
    return str(frame.get("tool_return", ""))


def _remainder(frame: frames.Frame, streamed: str | None) -> frames.Frame | None:
    """Return what is still to be sent of a stored frame, or None."""
    whole = _text_of(frame)
    if streamed is None:
        return frame
    if streamed == whole or not whole.startswith(streamed):
        return None
    rest, kind = whole[len(streamed) :], frame["message_type"]
    if kind == "assistant_message":
        return {**frame, "content": rest}
    if kind == "reasoning_message":
        return {**frame, "reasoning": rest}
    if kind == "tool_call_message":
        delta = {"arguments": rest, "tool_call_id": frame["tool_calls"][-1]["tool_call_id"]}
        return {**frame, "tool_call": delta, "tool_calls": delta}
    return None


def _stored(run: Run) -> list[Message]:
    roles = [Message.Role.ASSISTANT, Message.Role.TOOL]
    return list(Message.objects.filter(run=run, role__in=roles).order_by("sequence"))


async def reconcile_stream(run: Run, emitter: Emitter) -> None:
    """Bring the stream of a run that an earlier worker has begun up to its rows. Idempotent."""
    streamed = await _streamed(run)
    stored = [f for m in await run_db(_stored, run) for f in frames.frames_of(m)]
    known = {f["id"] for f in stored}
    for message_id in dict.fromkeys(key[0] for key in streamed):
        if message_id not in known:
            await emitter.frame(frames.retracted_frame(message_id, run.pk, timezone.now()))
    for frame in stored:
        rest = _remainder(frame, streamed.get((frame["id"], frame["message_type"])))
        if rest is not None:
            await emitter.frame(rest)
