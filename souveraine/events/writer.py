"""The worker's side of a run's stream: `emit` returns at once, a task sends batches in order.

Batches carry a number, so that one sent again after a lost reply is written once. While Redis is
away the writer waits and keeps the order; after a restart that lost the stream it continues above
the last seq that it was given.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import deque
from types import TracebackType

import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from souveraine.errors import Unavailable
from souveraine.events.connection import async_client
from souveraine.events.log import (
    ENTRIES_PER_CALL,
    Batch,
    Entry,
    Fenced,
    RunId,
    append_call,
    run_append,
    stream_key,
)

log = logging.getLogger(__name__)

BUFFER_ENTRIES = 10_000  # above it `emit` waits for Redis
OUTAGE_SECONDS = 120.0  # how long Redis may be away before the run gives up
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 1.0
# Also what Redis refuses passes: loading, read-only, out of memory, disk full.
PASSING = (RedisConnectionError, RedisTimeoutError, ResponseError, OSError)


class EventWriter:
    """Writes one run's events under one fence; belongs to one event loop.

    `min_seq` is the run row's high-water mark. Use it as `async with`, or call `aclose`.
    """

    def __init__(
        self,
        run_id: RunId,
        fence: int,
        *,
        min_seq: int = 0,
        buffer_entries: int = BUFFER_ENTRIES,
        outage_seconds: float = OUTAGE_SECONDS,
        client: redis.asyncio.Redis | None = None,
    ) -> None:
        stream_key(run_id)  # a malformed id is refused here, not in the background
        self.run_id, self.fence = run_id, fence
        self.last_seq = min_seq
        self._limit, self._outage_seconds = buffer_entries, outage_seconds
        self._client = client
        self._name, self._batch_number = uuid.uuid4().hex, 0
        self._buffer: deque[Entry] = deque()
        self._in_flight = 0
        self._filled, self._progress = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._closed = False

    async def __aenter__(self) -> EventWriter:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def pending(self) -> int:
        """How many entries are not yet acknowledged by Redis."""
        return len(self._buffer) + self._in_flight

    async def emit(self, kind: str, data: bytes) -> None:
        """Put one entry into the queue; waits only when the buffer is full.

        Raises Fenced once the run was taken over, Unavailable once Redis was away too long; entries
        not yet written are lost then.
        """
        while self.pending >= self._limit and self._error is None:
            await self._wait_for_progress()
        self._check()
        if self._closed:
            raise RuntimeError("emit after aclose: the writer of this run is closed")
        self._buffer.append((kind, data))
        self._filled.set()
        if self._task is None:
            self._task = asyncio.create_task(self._send(), name=f"event-writer {self.run_id}")
            self._task.add_done_callback(self._stopped)

    async def flush(self) -> int:
        """Wait until Redis has acknowledged everything emitted so far; return the last seq.

        Raises as `emit` does.
        """
        while self.pending and self._error is None:
            await self._wait_for_progress()
        self._check()
        return self.last_seq

    async def aclose(self, *, timeout_seconds: float | None = None) -> None:
        """Flush and stop; safe to call twice.

        `timeout_seconds` bounds the wait for an absent Redis, and TimeoutError tells that entries
        were dropped. Raises as `emit` does.
        """
        self._closed = True
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.flush()
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
                self._task = None

    def _check(self) -> None:
        if isinstance(self._error, Fenced):
            raise Fenced(str(self._error))
        if self._error is not None:
            raise self._error

    async def _wait_for_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._error = self._error or Unavailable("The writer of this run was stopped.")
        else:
            self._error = task.exception()
            if not isinstance(self._error, Fenced | Unavailable):
                log.error("event=writer_failed run_id=%s", self.run_id, exc_info=self._error)
        self._buffer.clear()
        self._in_flight = 0
        self._progress.set()  # wakes whoever waits, to see the error

    async def _send(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._buffer:
                await self._send_batch()

    async def _send_batch(self) -> None:
        size = min(len(self._buffer), ENTRIES_PER_CALL)
        entries = [self._buffer.popleft() for _ in range(size)]
        self._in_flight = size
        self._batch_number += 1
        seqs = await self._append_through_outages(entries)
        self.last_seq = max(self.last_seq, seqs[-1])
        self._in_flight = 0
        self._progress.set()

    async def _append_through_outages(self, entries: list[Entry]) -> list[int]:
        loop = asyncio.get_running_loop()
        away_since: float | None = None
        delay = FIRST_RETRY_SECONDS
        batch = Batch(self.run_id, self.fence, entries, self.last_seq)
        keys, args = append_call(batch, self._name, str(self._batch_number))
        while True:
            try:
                return await run_append(self._client or async_client(), keys, args)
            except PASSING as error:
                away_since = away_since or loop.time()
                if loop.time() - away_since > self._outage_seconds:
                    raise Unavailable(
                        f"Redis has been away for {self._outage_seconds:g} s, so the run cannot be "
                        "streamed. Check that Redis runs, then send the message again."
                    ) from error
                log.warning("event=append_retry run_id=%s error=%s", self.run_id, error)
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
                delay = min(delay * 2, LAST_RETRY_SECONDS)
