"""Waiting for news of a topic (an id): all watchers of a process share one pub/sub connection.

A wake-up says only "look at the rows". It may get lost, so a watcher also looks from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from souveraine.events.signals import listen, publish

log = logging.getLogger(__name__)
CHANNEL = "news"

_wakeups: dict[asyncio.AbstractEventLoop, WakeUps] = {}


def wake(*topics: str) -> bool:
    """Wake the watchers of these topics in all processes; False when Redis could not be reached."""
    return publish(CHANNEL, " ".join(topics))


class _Ready(asyncio.Event):
    """Calls back whenever the subscription stands (again)."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def set(self) -> None:
        super().set()
        self._call()


class WakeUps:
    """The watchers of one event loop; see `get_wakeups`."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._listener: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, topic: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the topic may have news; the watcher clears it before it looks."""
        event = asyncio.Event()
        self._watchers.setdefault(topic, set()).add(event)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._listen(), name="wake-ups")
        try:
            yield event
        finally:
            self._leave(topic, event)

    def _leave(self, topic: str, event: asyncio.Event) -> None:
        watchers = self._watchers[topic]
        watchers.discard(event)
        if not watchers:
            del self._watchers[topic]
        if not self._watchers and self._listener is not None:
            self._listener.cancel()
            self._listener = None

    async def _listen(self) -> None:
        try:
            # What was said before the subscription stood is lost, hence everybody looks then.
            async for signal in listen(CHANNEL, ready=_Ready(self._wake_all)):
                for topic in signal.text.split():
                    for event in self._watchers.get(topic, ()):
                        event.set()
        except Exception:
            log.exception("event=wake_ups_stopped")  # the next watcher starts it again

    def _wake_all(self) -> None:
        for watchers in self._watchers.values():
            for event in watchers:
                event.set()


def get_wakeups() -> WakeUps:
    """Return the wake-ups of the running event loop, made at the first call."""
    loop = asyncio.get_running_loop()
    found = _wakeups.get(loop)
    if found is None:
        for ended in [other for other in _wakeups if other.is_closed()]:
            del _wakeups[ended]
        found = _wakeups[loop] = WakeUps()
    return found
