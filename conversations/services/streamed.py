"""What a run's stream shows against what is stored, and the frames that make them agree (architecture §5, end).

What was streamed but never stored is retracted, what was stored but not (wholly) streamed is added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from django.utils import timezone

from conversations.models import Run
from conversations.selectors import run_messages
from conversations.wire import frames
from souveraine.events.log import Event, exists, has_gap, read

PAGE = 2000
CALL_KINDS = ("tool_call_message", "approval_request_message")


class Shown:
    """What a reader of the stream shows: {(message id, kind): concatenated text}, retracted ones left out."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], str] = {}
        self.terminal: set[str] = set()

    def take(self, events: list[Event]) -> None:
        for event in events:
            if event.kind in ("frame", "error"):
                self._take(json.loads(event.data))

    def _take(self, frame: dict[str, Any]) -> None:
        kind, message_id = frame["message_type"], frame.get("id")
        if message_id is None:
            self.terminal.add(kind)
        elif kind == "souveraine_retracted":
            self.texts = {key: text for key, text in self.texts.items() if key[0] != message_id}
        else:
            key = (message_id, kind)
            self.texts[key] = self.texts.get(key, "") + _text_of(frame)


def _shown(run: Run) -> Shown:
    shown, after = Shown(), 0
    while events := read(run.pk, after, PAGE):
        shown.take(events)
        after = events[-1].seq
    return shown


def _text_of(frame: dict[str, Any]) -> str:
    kind = frame["message_type"]
    if kind == "assistant_message":
        return (
            frame["content"] if isinstance(frame["content"], str) else json.dumps(frame["content"])
        )
    if kind == "reasoning_message":
        return str(frame["reasoning"])
    if kind in CALL_KINDS:
        calls = frame["tool_calls"]
        parts = calls if isinstance(calls, list) else [calls]
        return "".join((c.get("name") or "") + (c.get("arguments") or "") for c in parts)
    return str(frame.get("tool_return", ""))


REST_FIELDS = {"assistant_message": "content", "reasoning_message": "reasoning"}


def _rest(frame: frames.Frame, streamed: str | None) -> frames.Frame | None:
    """Return what is still to be sent of a stored frame, None when all was.

    Raises ValueError when nothing can be added to what was streamed, so that it must be sent anew.
    """
    whole = _text_of(frame)
    if streamed is None:
        return frame
    if streamed == whole:
        return None
    field = REST_FIELDS.get(frame["message_type"])
    if field is None or not whole.startswith(streamed):
        raise ValueError(frame["id"])
    return {**frame, field: whole[len(streamed) :]}


def stored_frames(run: Run) -> list[frames.Frame]:
    return frames.frames_of_all(run_messages(run), is_turn=True)


def _retract(run: Run, message_ids: Iterable[str]) -> list[frames.Frame]:
    now = timezone.now()
    return [frames.retracted_frame(i, run.pk, now) for i in dict.fromkeys(message_ids)]


def missing(run: Run, shown: Shown, stored: list[frames.Frame]) -> list[frames.Frame]:
    """Return what makes the stream agree with the rows."""
    known = {frame["id"] for frame in stored}
    out = _retract(run, (key[0] for key in shown.texts if key[0] not in known))
    for message_id, group in groupby(stored, key=lambda frame: str(frame["id"])):
        parts = list(group)
        try:
            rests = [_rest(f, shown.texts.get((message_id, f["message_type"]))) for f in parts]
            out += [rest for rest in rests if rest is not None]
        except ValueError:
            out += [*_retract(run, [message_id]), *parts]
    return out


def anew(run: Run, shown: Shown, stored: list[frames.Frame]) -> list[frames.Frame]:
    """Return everything, for a stream that Redis has lost in part.

    Who has read which part is unknown, so all is retracted first.
    """
    ids_shown = (key[0] for key in shown.texts)
    return [*_retract(run, [*ids_shown, *(frame["id"] for frame in stored)]), *stored]


def unstreamed(run: Run) -> tuple[list[frames.Frame], set[str]]:
    """Return what the stream of an ended run lacks, and the kinds of terminal frames that it has."""
    shown, stored = _shown(run), stored_frames(run)
    is_damaged = has_gap(run.pk) or not exists(run.pk)
    return (anew if is_damaged else missing)(run, shown, stored), shown.terminal
