"""What happens in all conversations of an agent, for one viewer: each active one is followed by a task.

The tasks give their frames to one short queue, so that a viewer who does not keep up makes them wait; each
conversation's frames stay in order. Decision 0006 says how a viewer comes back.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone

from agents.models import Agent
from conversations.ambient import (
    RECENT,
    AgentCursor,
    Cursor,
    Start,
    active_conversations,
    first_unseen,
)
from conversations.api.ambient import SILENCE, Batch, ConversationTail, set_within
from conversations.api.reading import read
from conversations.wire import ambient as wire
from conversations.wire import frames
from souveraine.events.wakeups import get_wakeups

logger = logging.getLogger(__name__)
QUEUED_BATCHES = 4


class _Given(NamedTuple):
    """One batch, and where its conversation stands after it."""

    conversation_id: uuid.UUID
    cursor: Cursor
    batch: Batch


class _Look(NamedTuple):
    """What a look at the rows has found: the last run of each active conversation, and where new ones begin."""

    at: datetime
    numbers: dict[uuid.UUID, int]
    new: dict[uuid.UUID, Start]


class AgentFeed:
    """Everything that a viewer of one agent gets, for as long as it may watch."""

    def __init__(
        self,
        agent: Agent,
        since: datetime,
        starts: dict[uuid.UUID, Start],
        bandwidth: wire.Bandwidth,
        *,
        why_closed: Callable[[], str | None],
    ) -> None:
        self._agent_id, self._bandwidth, self._why_closed = agent.pk, bandwidth, why_closed
        self._looked_at = since + RECENT
        self._tails: dict[uuid.UUID, ConversationTail] = {}
        self._cursors: dict[uuid.UUID, Cursor] = {}  # of what was given out; the tails are ahead
        self._tasks: dict[uuid.UUID, asyncio.Task[None]] = {}
        self._checked: dict[uuid.UUID, int] = {}  # up to which run a task has looked
        self._queue: asyncio.Queue[_Given | Batch | None] = asyncio.Queue(QUEUED_BATCHES)
        self._starts = starts
        self.closed: str | None = None  # why the server ended it

    async def batches(self) -> AsyncGenerator[Batch]:
        """Yield JSON frames for ever, or to the last one, which says why it ends."""
        beginning = [*self._begin(self._starts), self._ping()]
        scout = asyncio.create_task(self._scout(), name=f"scout agent-{self._agent_id}")
        try:
            yield beginning
            while (item := await self._next(scout)) is not None:
                yield self._taken(item) if isinstance(item, _Given) else item or [self._ping()]
        finally:
            tasks = [scout, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self, scout: asyncio.Task[None]) -> _Given | Batch | None:
        """Return the next item; None at the end. Raises what the scout has failed with."""
        getter = asyncio.ensure_future(self._queue.get())
        try:
            await asyncio.wait([getter, scout], return_when=asyncio.FIRST_COMPLETED)
            if scout.done() and not getter.done():
                scout.result()
                return None
            return await getter
        finally:
            getter.cancel()

    def _taken(self, given: _Given) -> Batch:
        self._cursors[given.conversation_id] = given.cursor
        if wire.is_run_end(given.batch[-1]):
            return [*given.batch[:-1], wire.with_after(given.batch[-1], self._token())]
        return given.batch

    def _token(self) -> str:
        return AgentCursor(self._looked_at, self._cursors).token()

    def _ping(self) -> bytes:
        return wire.agent_ping(self._agent_id, self._token())

    def _begin(self, starts: dict[uuid.UUID, Start]) -> Batch:
        """Take conversations up; return what has to be said about those that cannot begin where they should."""
        skipped = []
        for key, start in starts.items():
            self._tails[key] = ConversationTail(key, start.cursor, self._bandwidth)
            self._cursors[key] = start.cursor
            if start.skipped:
                frame = frames.dump(wire.resync(start.skipped))
                skipped.append(wire.tagged(frame, key, start.cursor))
        return skipped

    async def _scout(self) -> None:
        """Look for what is new until the viewer may no longer watch."""
        interval = settings.CONFIG["SOUVERAINE_PING_SECONDS"]
        with get_wakeups().watch(str(self._agent_id)) as news:
            while True:
                news.clear()
                self.closed = await read(self._why_closed)
                if self.closed is not None:
                    await self._queue.put([frames.dump(wire.closed(self.closed))])
                    await self._queue.put(None)
                    return
                look = await read(self._look, set(self._tails))
                skipped = self._begin(look.new)
                self._looked_at = look.at
                self._follow_all(look.numbers, news)
                if skipped:
                    await self._queue.put(skipped)
                if not await set_within(news, interval):
                    await self._queue.put(SILENCE)

    def _look(self, known: set[uuid.UUID]) -> _Look:
        at, since = timezone.now(), self._looked_at - RECENT
        numbers = active_conversations(self._agent_id, since)
        new = {key: first_unseen(key, since) for key in numbers if key not in known}
        return _Look(at, numbers, {key: start for key, start in new.items() if start})

    def _follow_all(self, numbers: dict[uuid.UUID, int], news: asyncio.Event) -> None:
        """Follow the active conversations, and forget those that are not: nothing of them is unseen."""
        for key, tail in list(self._tails.items()):
            if key in self._tasks:
                continue
            if key in numbers:
                if numbers[key] != self._checked.get(key):
                    self._tasks[key] = asyncio.create_task(self._follow(tail, numbers[key], news))
            elif key in self._checked and self._cursors[key] == tail.cursor:
                for known in (self._tails, self._cursors, self._checked):
                    known.pop(key)

    async def _follow(self, tail: ConversationTail, number: int, news: asyncio.Event) -> None:
        key = tail.conversation_id
        try:
            async with aclosing(tail.batches()) as batches:
                async for batch in batches:
                    if batch:
                        await self._queue.put(_Given(key, tail.cursor, batch))
            self._checked[key] = number
        except Exception:
            logger.exception("event=conversation_not_followed conversation_id=conv-%s", key)
        finally:
            self._tasks.pop(key, None)
            news.set()  # for what has come after the last read
