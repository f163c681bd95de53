"""Where a follower's stream begins: exactly behind its cursor, out of the stored messages, or nowhere.

A stream is kept for three hours after its end and up to a number of events; Redis may lose it altogether. What
cannot be continued exactly is refused with 410, and following from 0 always works: then the messages come whole.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from rest_framework.request import Request

from conversations.api.reading import read
from conversations.models import Run
from conversations.selectors import run_messages
from conversations.services.accept import PING_SEQ
from conversations.wire import frames
from souveraine.errors import Expired, InvalidArgument
from souveraine.events.log import END, Event, ends_async, has_gap_async

MAX_CURSOR = 2**53  # what JSON numbers can carry exactly


@dataclass(frozen=True)
class Beginning:
    """How a stream begins: by `events` that are all of it, or behind `seq` of the run's log.

    `is_whole_at_end`: the log's frames cannot be used; the stored messages follow once the run has ended.
    """

    seq: int = 0
    events: list[Event] | None = None
    is_whole_at_end: bool = False


@dataclass(frozen=True)
class _State:
    is_closed: bool  # ended, and the log has had its last events
    last_seq: int  # of the log then
    terminal: list[Event]


def cursor_of(request: Request, starting_after: int) -> int:
    """Return the later one of `starting_after` and the header Last-Event-ID. Raises InvalidArgument."""
    text = request.headers.get("Last-Event-ID", "").strip()
    if not text:
        return starting_after
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > MAX_CURSOR:
        raise InvalidArgument(
            f"Last-Event-ID must be the seq_id of the last frame that you have, not {text[:40]!r}."
        )
    return max(starting_after, int(text))


async def beginning_of(run_id: uuid.UUID, after: int) -> Beginning:
    """Find how to go on behind `after`.

    Raises Expired when events behind it are no longer kept, InvalidArgument when it is beyond the newest one,
    and RedisError.
    """
    first, last = await ends_async(run_id)
    if first is None or last is None:
        return await _without_log(run_id, after)
    if after > last.seq:
        raise _beyond(run_id, after, last.seq)
    if after == last.seq and last.kind == END:
        return Beginning(events=[last])
    if first.seq <= after + 1 or await has_gap_async(run_id):
        return Beginning(after)  # what a gap has swallowed comes again at the run's end
    if after:
        raise _expired(run_id, after, first.seq)
    if last.kind == END:
        return Beginning(events=await read(rebuilt_events, run_id))
    return Beginning(last.seq, is_whole_at_end=True)


async def _without_log(run_id: uuid.UUID, after: int) -> Beginning:
    state = await read(_state_of, run_id)
    if not state.is_closed:
        return Beginning(after)  # Redis has lost it; the worker goes on above the last number
    if after == 0:
        return Beginning(events=await read(rebuilt_events, run_id))
    if after > state.last_seq:
        raise _beyond(run_id, after, state.last_seq)
    if after >= state.last_seq - len(state.terminal):
        return Beginning(events=state.terminal)
    raise _expired(run_id, after, None)


def _state_of(run_id: uuid.UUID) -> _State:
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return _State(True, 0, _terminal(run_id, None))
    return _State(run.stream_closed, run.last_event_seq, _terminal(run_id, run))


def _terminal(run_id: uuid.UUID, run: Run | None) -> list[Event]:
    if run is None:
        entries = frames.terminal_entries(run_id, "cancelled", {}, None)
    else:
        entries = frames.terminal_entries(run_id, run.stop_reason or "error", run.usage, run.error)
    return [Event(0, kind, data) for kind, data in entries]


def rebuilt_events(run_id: uuid.UUID) -> list[Event]:
    """Return an ended run's events out of its rows; their numbers are not those of the lost stream."""
    run = Run.objects.filter(pk=run_id).first()
    shown = [] if run is None else frames.frames_of_all(run_messages(run), is_turn=True)
    events = [("frame", frames.dump(frame)) for frame in shown]
    events += [(event.kind, event.data) for event in _terminal(run_id, run)]
    return [Event(seq, kind, data) for seq, (kind, data) in enumerate(events, PING_SEQ + 1)]


def _expired(run_id: uuid.UUID, after: int, oldest: int | None) -> Expired:
    return Expired(
        f"Some events behind {after} of run-{run_id} are no longer kept. Drop what you show of this run and follow "
        "it with starting_after 0: its messages then come whole.",
        run_id=f"run-{run_id}",
        starting_after=after,
        oldest_seq_id=oldest,
    )


def _beyond(run_id: uuid.UUID, after: int, newest: int) -> InvalidArgument:
    return InvalidArgument(
        f"starting_after {after} is beyond the newest event of run-{run_id}, which is {newest}. Give the seq_id of "
        "the last frame that you have, or 0 for all.",
        run_id=f"run-{run_id}",
        newest_seq_id=newest,
    )
