"""The web's side of the runs' streams: all subscribers of a process share one blocking XREAD.

A subscription is either *live* (the shared reader puts events into its queue) or *catching up* (its
own `next` reads them by XRANGE from its last seq). It begins by catching up, and goes back to that
when its queue is full; so a slow client costs only itself, and no event is left out or given twice.

Going live happens in one step of the event loop, after the subscription has seen everything up to
the reader's cursor. An entry in a wake-up stream, which every XREAD includes, makes a blocked read
return when a stream is added: unlike CLIENT UNBLOCK it also works when it arrives just before the
read blocks.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from souveraine.events.connection import async_client, new_blocking_client
from souveraine.events.log import Event, RunId, parse_entries, stream_key

log = logging.getLogger(__name__)

QUEUE_EVENTS = 1_000  # per subscriber; above it, it is refilled from Redis at its own pace
QUEUE_BYTES = 1 << 20  # likewise: a tool's return may be large
CATCH_UP_EVENTS = 500  # per XRANGE
READ_EVENTS = 100  # per stream and XREAD
BLOCK_SECONDS = 5.0
ANSWER_SECONDS = 5.0  # beyond BLOCK_SECONDS; a read that takes longer has lost its connection
WAKE_TTL_SECONDS = 60
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 1.0

_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


class SubscriptionClosed(Exception):
    """The subscription (or its hub) was closed; no more events can come through it."""


class _Stream:
    """One run's stream as the shared reader knows it; it exists while a subscription is live."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor  # everything up to it was given to the live subscriptions
        self.live: set[Subscription] = set()


class Subscription:
    """Events of one run, in order, from a given seq on; for one reader at a time.

    Iterating gives lists of events until `close`. Also usable as `async with`.
    """

    def __init__(self, hub: Hub, run_id: RunId, after: int) -> None:
        self.key = stream_key(run_id)
        self.last_seq = after  # the newest seq in the queue or given out
        self._hub = hub
        self._queue: deque[Event] = deque()
        self._queued_bytes = 0
        self._ready = asyncio.Event()
        self.is_live = self.is_closed = False

    async def next(self, timeout_seconds: float | None = None) -> list[Event] | None:
        """Wait for events and return all that are there; None after `timeout_seconds` without any.

        Waits also while Redis is away. Cancelling it loses nothing. Raises SubscriptionClosed.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self._queue:
                    self._check_open()
                    if not self.is_live:
                        events = await self._catch_up()
                        if events:
                            return events
                        continue
                    self._ready.clear()
                    await self._ready.wait()
        except TimeoutError:
            return None
        events = list(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        return events

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        while not self.is_closed:
            try:
                events = await self.next()
            except SubscriptionClosed:
                return
            if events:
                yield events

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription; a waiting `next` raises SubscriptionClosed. Safe to call twice."""
        self.is_closed = True
        self._hub._leave(self)
        self._hub._subscriptions.discard(self)
        self._queue.clear()
        self._ready.set()

    def deliver(self, events: list[Event]) -> bool:
        """Take events from the shared reader; False, and nothing taken, when the queue is full."""
        fresh = [event for event in events if event.seq > self.last_seq]
        size = self._queued_bytes + sum(len(event.data) for event in fresh)
        if len(self._queue) + len(fresh) > QUEUE_EVENTS or size > QUEUE_BYTES:
            return False
        if fresh:
            self._queue.extend(fresh)
            self._queued_bytes = size
            self.last_seq = fresh[-1].seq
            self._ready.set()
        return True

    def demote(self) -> None:
        """Go back to catching up, after the queue is emptied."""
        self.is_live = False
        self._ready.set()

    def _check_open(self) -> None:
        if self.is_closed:
            raise SubscriptionClosed("The subscription was closed; subscribe again from last_seq.")

    async def _catch_up(self) -> list[Event]:
        cursor_before = self._hub._cursor(self.key)
        events = await self._hub._read_range(self.key, self.last_seq)
        self._check_open()
        if events:
            self.last_seq = events[-1].seq
        cursor = self._hub._cursor(self.key)
        # An empty answer below an unmoved cursor: those events are gone from Redis, or another
        # subscriber is ahead of the stream.
        is_level = cursor <= self.last_seq or (not events and cursor == cursor_before)
        if is_level and len(events) < CATCH_UP_EVENTS:
            self._hub._join(self)
        return events


class Hub:
    """Shared reader of one event loop; see `get_hub`."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._streams: dict[str, _Stream] = {}
        self._subscriptions: set[Subscription] = set()
        self._wake_key = f"souveraine:hub:{{{uuid.uuid4()}}}:wake"
        self._wake_cursor = "0-0"
        self._has_streams = asyncio.Event()
        self._is_reading = self._must_wake = self.is_closed = False
        self._reader: asyncio.Task[None] | None = None
        self._waker: asyncio.Task[None] | None = None

    def subscribe(self, run_id: RunId, after: int = 0) -> Subscription:
        """Return the events of `run_id` with seq > `after`, past ones first, then as they come.

        Costs nothing before the first `next`; the caller closes it. The run need not exist yet.
        """
        if self.is_closed:
            raise SubscriptionClosed("The hub was closed.")
        subscription = Subscription(self, run_id, after)
        self._subscriptions.add(subscription)
        return subscription

    @property
    def subscription_count(self) -> int:
        """How many subscriptions are open."""
        return len(self._subscriptions)

    async def aclose(self) -> None:
        """Close all subscriptions and stop the reader; safe to call twice."""
        self.is_closed = True
        for subscription in list(self._subscriptions):
            subscription.close()
        tasks = [task for task in (self._reader, self._waker) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cursor(self, key: str) -> int:
        stream = self._streams.get(key)
        return stream.cursor if stream else -1

    def _join(self, subscription: Subscription) -> None:
        stream = self._streams.get(subscription.key)
        if stream is None:
            stream = self._streams[subscription.key] = _Stream(subscription.last_seq)
            self._has_streams.set()
            self._wake()
        elif stream.cursor > subscription.last_seq:
            # The others skip what they have; the read that is under way is thrown away.
            stream.cursor = subscription.last_seq
            self._wake()
        stream.live.add(subscription)
        subscription.is_live = True
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_for_ever(), name="event-hub")
            self._reader.add_done_callback(self._reader_stopped)

    def _leave(self, subscription: Subscription) -> None:
        subscription.demote()
        stream = self._streams.get(subscription.key)
        if stream is None:
            return
        stream.live.discard(subscription)
        if not stream.live:
            del self._streams[subscription.key]
            if not self._streams:
                self._has_streams.clear()

    async def _read_range(self, key: str, after: int) -> list[Event]:
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                raw: Any = await async_client(self._url).xrange(
                    key, f"{after + 1}-0", "+", CATCH_UP_EVENTS
                )
            except (RedisError, OSError) as error:
                log.warning("event=catch_up_retry error=%s", error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, LAST_RETRY_SECONDS)
            else:
                return parse_entries(raw)

    def _wake(self) -> None:
        if not self._is_reading:
            return  # the next read includes the new stream anyway
        self._must_wake = True
        if self._waker is None or self._waker.done():
            self._waker = asyncio.create_task(self._add_wake_entries(), name="event-hub-waker")

    async def _add_wake_entries(self) -> None:
        # A stream may be added after the reader has gone on but before the reply to XADD is here;
        # the flag then asks for another entry. Without it that stream would wait for BLOCK_SECONDS.
        while self._must_wake:
            self._must_wake = False
            try:
                pipeline = async_client(self._url).pipeline(transaction=False)
                pipeline.xadd(self._wake_key, {"w": "1"}, maxlen=1, approximate=False)
                pipeline.expire(self._wake_key, WAKE_TTL_SECONDS)
                await pipeline.execute()
            except (RedisError, OSError) as error:
                # The reader finds the new stream at the latest when its read times out.
                log.warning("event=hub_wake_failed error=%s", error)

    async def _read_for_ever(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            client = new_blocking_client(self._url)
            try:
                while True:
                    await self._has_streams.wait()
                    await self._read_once(client)
                    delay = FIRST_RETRY_SECONDS
            except (RedisError, OSError) as error:  # TimeoutError is an OSError
                log.warning("event=hub_read_retry retry_seconds=%.2f error=%r", delay, error)
            finally:
                await client.aclose()
            # An emptied Redis with its clock set back would give smaller ids than the old cursor.
            self._wake_cursor = "0-0"
            await asyncio.sleep(delay)
            delay = min(delay * 2, LAST_RETRY_SECONDS)

    async def _read_once(self, client: redis.asyncio.Redis) -> None:
        asked = {key: (stream, stream.cursor) for key, stream in self._streams.items()}
        cursors: dict[Any, Any] = {key: f"{cursor}-0" for key, (_, cursor) in asked.items()}
        self._is_reading = True
        try:
            async with asyncio.timeout(BLOCK_SECONDS + ANSWER_SECONDS):
                reply: Any = await client.xread(
                    {self._wake_key: self._wake_cursor, **cursors},
                    count=READ_EVENTS,
                    block=int(BLOCK_SECONDS * 1000),
                )
        finally:
            self._is_reading = False
        for raw_key, entries in reply or []:
            key = raw_key.decode()
            if key == self._wake_key:
                self._wake_cursor = entries[-1][0].decode()
                continue
            stream, cursor = asked[key]
            # Left and joined again meanwhile: the next read asks from the new cursor.
            if self._streams.get(key) is stream and stream.cursor == cursor:
                self._hand_out(stream, parse_entries(entries))

    def _hand_out(self, stream: _Stream, events: list[Event]) -> None:
        stream.cursor = max(stream.cursor, events[-1].seq)
        for subscription in list(stream.live):
            if not subscription.deliver(events):
                self._leave(subscription)

    def _reader_stopped(self, task: asyncio.Task[None]) -> None:
        self._reader = None
        if task.cancelled() or self.is_closed:
            return
        log.error("event=hub_reader_failed", exc_info=task.exception())
        asyncio.get_running_loop().call_later(LAST_RETRY_SECONDS, self._recover)

    def _recover(self) -> None:
        for subscription in list(self._subscriptions):
            self._leave(subscription)


def get_hub() -> Hub:
    """Return the hub of the running event loop, made at the first call."""
    loop = asyncio.get_running_loop()
    hub = _hubs.get(loop)
    if hub is None or hub.is_closed:
        for ended in [other for other in _hubs if other.is_closed()]:
            del _hubs[ended]
        hub = _hubs[loop] = Hub()
    return hub


async def close_hub() -> None:
    """Close the hub of the running event loop, if there is one."""
    hub = _hubs.pop(asyncio.get_running_loop(), None)
    if hub is not None:
        await hub.aclose()
