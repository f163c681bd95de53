"""What happens in a conversation, for any number of viewers: replayed behind a cursor, then as it comes.

Nothing is written for it: the runs' own streams are followed one after the other (decision 0006). A viewer
that leaves or does not keep up costs only itself.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from redis.exceptions import RedisError
from rest_framework.request import Request

from agents.actor import Actor
from conversations.ambient import (
    LIVE_BASE,
    MAX_CURSOR,
    RUN_END,
    STORED_BASE,
    Cursor,
    Start,
    input_messages,
    is_allowed,
    is_there,
    runs_behind,
    start_of,
)
from conversations.api.base import ApiView
from conversations.api.following import rebuilt_events
from conversations.api.reading import read
from conversations.api.streams import ENDED_WITHOUT_EVENTS_SECONDS
from conversations.models import Run
from conversations.services.accept import PING_SEQ
from conversations.services.runs import has_ended
from conversations.wire import ambient as wire
from conversations.wire import frames
from souveraine.api.handoff import StreamSender, hand_over
from souveraine.api.validation import failed, parse_query
from souveraine.events import sse
from souveraine.events.hub import get_hub
from souveraine.events.log import Event, exists_async
from souveraine.events.wakeups import get_wakeups

Batch = list[bytes]
SILENCE: Batch = []  # nothing came for a ping's interval


class RunFeed:
    """The frames of one run behind a position, to its end."""

    def __init__(self, run: Run, position: int, bandwidth: wire.Bandwidth) -> None:
        self.position = position  # of the last frame given out, or looked at; -1: none yet
        self._run, self._bandwidth = run, bandwidth
        self._has_gap = False

    async def batches(self) -> AsyncGenerator[Batch]:
        """Yield JSON frames; SILENCE when none came for the interval of pings."""
        if self.position < LIVE_BASE:
            beginning = await self._beginning()
            if beginning:
                yield beginning
        if self.position < STORED_BASE:
            async with aclosing(self._live()) as live:
                async for batch in live:
                    yield batch
        if self.position < RUN_END:
            yield await self._stored()

    def _give(self, data: bytes, position: int) -> bytes:
        self.position = position
        assert self._run.event_number is not None
        cursor = Cursor(self._run.event_number, position)
        return wire.tagged(data, self._run.conversation_id, cursor)

    def _frame(self, frame: frames.Frame, position: int) -> Batch:
        if not wire.is_shown(frame["message_type"], self._bandwidth):
            return []
        return [self._give(frames.dump(frame), position)]

    async def _beginning(self) -> Batch:
        """The start, and what the user said: other clients have not seen it."""
        batch = self._frame(wire.run_started(self._run), 0) if self.position < 0 else []
        said = frames.frames_of_all(await read(input_messages, self._run))
        for number, frame in enumerate(said, 1):
            place = min(number, LIVE_BASE - 1)
            if place > self.position:
                # The row gets a step when the model is asked; a replay is to be the same as the first time.
                batch += self._frame({**frame, "step_id": None}, place)
        return batch

    async def _live(self) -> AsyncGenerator[Batch]:
        """Follow the stream; ends early when the rest has to be told out of the rows."""
        interval = settings.CONFIG["SOUVERAINE_PING_SECONDS"]
        seen = max(self.position - LIVE_BASE, PING_SEQ)
        silent_since_end = 0.0
        if await self._is_gone():
            return
        async with get_hub().subscribe(self._run.pk, seen) as subscription:
            while True:
                events = await subscription.next(interval)
                if events is None:
                    yield SILENCE
                    if await self._is_gone():
                        return
                    silent_since_end += interval if await read(has_ended, self._run.pk) else 0
                    if silent_since_end >= ENDED_WITHOUT_EVENTS_SECONDS:
                        return
                    continue
                if events[-1].seq - seen > len(events) and not self._has_gap:
                    self._has_gap = True
                    if await read(has_ended, self._run.pk):
                        return
                    yield self._frame(
                        wire.resync("events_lost", self._run), max(self.position, LIVE_BASE)
                    )
                seen = events[-1].seq
                is_end = events[-1].kind == "end"
                batch = self._shown(events)
                if is_end and not self._has_gap:
                    batch += self._frame(wire.run_ended(self._run, events[-1].data), RUN_END)
                    self.position = RUN_END
                if batch:
                    yield batch
                if is_end:
                    return

    async def _is_gone(self) -> bool:
        """Tell whether the run has ended and Redis has nothing of it."""
        try:
            return not await exists_async(self._run.pk) and await read(has_ended, self._run.pk)
        except RedisError:
            return False  # the hub waits for it to come back

    def _shown(self, events: list[Event], *, is_stored: bool = False) -> Batch:
        batch, base = [], STORED_BASE if is_stored else LIVE_BASE
        for event in events:
            data = wire.event_json(event, self._run, self._bandwidth, is_stored=is_stored)
            if data is not None:
                batch.append(self._give(data, base + event.seq))
        return batch

    async def _stored(self) -> Batch:
        """The run out of its rows, in whole messages."""
        events = await read(rebuilt_events, self._run.pk)
        batch: Batch = []
        if LIVE_BASE + PING_SEQ < self.position < STORED_BASE or self._has_gap:
            batch += self._frame(wire.resync("stream_incomplete", self._run), STORED_BASE)
        unseen = [event for event in events if STORED_BASE + event.seq > self.position]
        batch += self._shown(unseen, is_stored=True)
        return batch + self._frame(wire.run_ended(self._run, events[-1].data), RUN_END)


class ConversationTail:
    """A conversation's frames behind a cursor, until there is nothing more for now."""

    def __init__(
        self, conversation_id: uuid.UUID, cursor: Cursor, bandwidth: wire.Bandwidth
    ) -> None:
        self.conversation_id, self.cursor, self._bandwidth = conversation_id, cursor, bandwidth

    async def batches(self) -> AsyncGenerator[Batch]:
        """Yield JSON frames, run by run; SILENCE when none came for the interval of pings."""
        while runs := await read(runs_behind, self.conversation_id, self.cursor):
            for run in runs:
                async with aclosing(self._run(run)) as batches:
                    async for batch in batches:
                        yield batch

    async def _run(self, run: Run) -> AsyncGenerator[Batch]:
        assert run.event_number is not None
        is_begun = run.event_number == self.cursor.number
        feed = RunFeed(run, self.cursor.position if is_begun else -1, self._bandwidth)
        async with aclosing(feed.batches()) as batches:
            async for batch in batches:
                if feed.position >= 0:
                    self.cursor = Cursor(run.event_number, feed.position)
                yield batch
        self.cursor = Cursor(run.event_number, RUN_END)


class ConversationFeed:
    """Everything that a viewer of one conversation gets, for as long as it may watch."""

    def __init__(
        self,
        actor: Actor,
        conversation_id: uuid.UUID,
        start: Start,
        bandwidth: wire.Bandwidth,
        *,
        is_allowed: Callable[[], bool],
    ) -> None:
        self._actor, self._skipped = actor, start.skipped
        self._is_allowed = is_allowed  # asked again with each ping
        self._tail = ConversationTail(conversation_id, start.cursor, bandwidth)
        self.closed: str | None = None  # why the server ended it

    async def batches(self) -> AsyncGenerator[Batch]:
        """Yield JSON frames for ever, or to the last one, which says why it ends."""
        tail, interval = self._tail, settings.CONFIG["SOUVERAINE_PING_SECONDS"]
        yield [*self._resync(), self._ping()]
        with get_wakeups().watch(str(tail.conversation_id)) as news:
            while True:
                news.clear()
                async with aclosing(tail.batches()) as batches:
                    async for batch in batches:
                        yield batch or [self._ping()]
                        if not batch and await self._is_closed():
                            break
                if await self._is_closed():
                    yield [self._tagged(wire.closed(self.closed or ""))]
                    return
                if not await set_within(news, interval):
                    yield [self._ping()]

    async def _is_closed(self) -> bool:
        self.closed = self.closed or await read(self._why_closed)
        return self.closed is not None

    def _why_closed(self) -> str | None:
        if not self._is_allowed():
            return "revoked"
        return None if is_there(self._actor, self._tail.conversation_id) else "deleted"

    def _resync(self) -> Batch:
        return [self._tagged(wire.resync(self._skipped))] if self._skipped else []

    def _ping(self) -> bytes:
        return wire.ping(self._tail.conversation_id, self._tail.cursor)

    def _tagged(self, frame: frames.Frame) -> bytes:
        return wire.tagged(frames.dump(frame), self._tail.conversation_id, self._tail.cursor)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event; False when it was not set in time."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


@dataclass
class AmbientStream:
    """A feed as data-only SSE."""

    feed: ConversationFeed

    async def run(self, send: StreamSender) -> None:
        """Send until the feed ends."""
        await send.start(200, sse.HEADERS)
        async with aclosing(self.feed.batches()) as batches:
            async for batch in batches:
                await send.body(b"".join(sse.data_frame(text) for text in batch))


class EventsQuery(BaseModel):
    """Query of the ambient streams."""

    after: int | None = Field(default=None, ge=0, le=MAX_CURSOR)
    bandwidth: wire.Bandwidth = "high"
    agent_id: str | None = None


class ConversationEventsView(ApiView):
    """What happens in a conversation."""

    query_model = EventsQuery

    @extend_schema(operation_id="conversations_events")
    def get(self, request: Request, conversation_id: str) -> HttpResponse:
        """Stream what comes behind `after` (default: now) and stay open while nothing runs."""
        query = parse_query(EventsQuery, request)
        conversation = self.conversation(conversation_id, query.agent_id)
        after = max(
            (c for c in (query.after, _last_event_id(request)) if c is not None), default=None
        )
        start = start_of(conversation, after)
        feed = ConversationFeed(
            self.actor,
            conversation.pk,
            start,
            query.bandwidth,
            is_allowed=partial(is_allowed, self.actor),
        )
        return hand_over(request, AmbientStream(feed))


def _last_event_id(request: Request) -> int | None:
    """Return the cursor of `Last-Event-ID`, as browsers send it. Raises ValidationFailed."""
    text = request.headers.get("Last-Event-ID", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= MAX_CURSOR):
        raise failed(
            "int_parsing", ("header", "Last-Event-ID"), "Input should be a cursor", text[:100]
        )
    return int(text)
