"""Frames of the ambient streams: those of the runs with `conversation_id` and `cursor`, and a few of their own."""

from __future__ import annotations

import json
import uuid
from typing import Any, Literal, TypeAlias

from django.utils import timezone

from conversations.ambient import Cursor
from conversations.models import Run
from conversations.wire import frames
from souveraine import ids
from souveraine.events.log import Event

Bandwidth: TypeAlias = Literal["high", "medium", "low", "minimal"]

STARTED, ENDED = "souveraine_run_started", "souveraine_run_ended"
RESYNC, CLOSED = "souveraine_resync", "souveraine_closed"
_ALWAYS = frozenset({STARTED, ENDED, CLOSED, RESYNC, "ping"})
_SAID = frozenset(
    {
        "user_message",
        "assistant_message",
        "approval_request_message",
        "approval_response_message",
    }
)
_OUTCOME = frozenset({"stop_reason", "error_message", "souveraine_retracted"})
_WORK = frozenset({"tool_call_message", "tool_return_message", "system_message", "event_message"})
# Contract souveraine §1.6; high shows everything.
SHOWN: dict[Bandwidth, frozenset[str]] = {
    "medium": _ALWAYS | _SAID | _OUTCOME | _WORK | {"summary_message"},
    "low": _ALWAYS | _SAID | _OUTCOME,
    "minimal": _ALWAYS,
}
RESYNC_TEXTS = {
    "history": "There are more turns behind this cursor than are replayed. The stream goes on with the newest; "
    "list the messages for the others.",
    "unknown": "This cursor is ahead of everything that was sent here. The stream goes on with the present; list "
    "the messages to see what is there.",
    "stream_incomplete": "This turn's stream is no longer complete. Drop what you have received of it: its messages "
    "follow as they are stored.",
    "events_lost": "Some of this turn's events were lost. Its messages follow as they are stored when it has "
    "ended; drop then what you have received of it.",
}
CLOSED_TEXTS = {
    "deleted": "The conversation or its agent was deleted.",
    "revoked": "The key with which this stream was opened is no longer valid.",
}


def is_shown(message_type: str, bandwidth: Bandwidth) -> bool:
    """Tell whether viewers of this bandwidth get such frames."""
    return bandwidth == "high" or message_type in SHOWN[bandwidth]


def tagged(json_text: bytes, conversation_id: uuid.UUID, cursor: Cursor) -> bytes:
    """Add `conversation_id` and `cursor` to a frame, which is a JSON object with at least one key."""
    name = ids.make(ids.CONVERSATION, conversation_id)
    return json_text[:-1] + f',"conversation_id":"{name}","cursor":{cursor.value}}}'.encode()


def ping(conversation_id: uuid.UUID, cursor: Cursor) -> bytes:
    """Return a keep-alive, which also tells where the viewer stands."""
    frame = frames.base_frame("ping", message_id=f"ping-{uuid.uuid4()}", date=timezone.now())
    return tagged(frames.dump(frame), conversation_id, cursor)


def agent_ping(agent_id: uuid.UUID, after: str) -> bytes:
    """Return a keep-alive of an agent's stream, with what a viewer comes back with."""
    frame = frames.base_frame("ping", message_id=f"ping-{uuid.uuid4()}", date=timezone.now())
    return frames.dump({**frame, "agent_id": ids.make(ids.AGENT, agent_id), "after": after})


def is_run_end(json_text: bytes) -> bool:
    """Tell whether a frame is the last one of a run."""
    return json_text.startswith(f'{{"message_type":"{ENDED}"'.encode())


def with_after(json_text: bytes, after: str) -> bytes:
    """Add what a viewer of an agent comes back with."""
    return json_text[:-1] + f',"after":"{after}"}}'.encode()


def run_started(run: Run) -> frames.Frame:
    """Return the frame with which a run begins."""
    return _about(STARTED, run, date=frames.date_of(run.created_at))


def run_ended(run: Run, end: bytes) -> frames.Frame:
    """Return the frame with which a run ends; `end` is the last entry of its stream."""
    stop_reason = json.loads(end)["stop_reason"]
    return _about(ENDED, run, stop_reason=stop_reason)


def resync(reason: str, run: Run | None = None) -> frames.Frame:
    """Return the frame that says what could not be replayed, and what to do."""
    about = _about(RESYNC, run) if run else {"message_type": RESYNC}
    return {**about, "reason": reason, "detail": RESYNC_TEXTS[reason]}


def closed(reason: str) -> frames.Frame:
    """Return the last frame of a stream that the server ends."""
    return {"message_type": CLOSED, "reason": reason, "detail": CLOSED_TEXTS[reason]}


def _about(message_type: str, run: Run, **fields: Any) -> frames.Frame:
    return {"message_type": message_type, "run_id": ids.make(ids.RUN, run.pk), **fields}


def event_json(
    event: Event, run: Run, bandwidth: Bandwidth, *, is_stored: bool = False
) -> bytes | None:
    """Return the frame of a stream's entry; None when it is not for viewers of this bandwidth.

    Every frame names its run, also those that do not need to in a stream of one run. `is_stored` events were
    made out of the rows: they have no number in the run's stream.
    """
    if event.kind not in ("frame", "error"):
        return None
    data = event.data
    if not is_stored:
        data = data.replace(b'"seq_id":null', b'"seq_id":%d' % event.seq, 1)
    has_run = data.startswith(b'{"id":')
    if has_run and bandwidth == "high":
        return data
    frame = json.loads(data)
    if not is_shown(frame["message_type"], bandwidth):
        return None
    return data if has_run else frames.dump({**frame, "run_id": ids.make(ids.RUN, run.pk)})
