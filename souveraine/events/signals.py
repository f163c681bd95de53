"""Wake-up notices between processes over pub/sub, such as "cancel <run id>".

A notice may get lost (nobody listening, Redis restarting), so it must only make fast what a row in
the database makes certain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

from redis.exceptions import RedisError

from souveraine.events.connection import new_blocking_client, sync_client

log = logging.getLogger(__name__)

PREFIX = "souveraine:signal:"
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 2.0


class Signal(NamedTuple):
    """One notice."""

    channel: str
    text: str


def publish(channel: str, text: str, *, url: str | None = None) -> bool:
    """Send a notice to all listeners of `channel`; False when Redis could not be reached.

    Never raises for a missing Redis: whatever the notice announces is found without it, later.
    """
    try:
        sync_client(url).publish(PREFIX + channel, text)
    except (RedisError, OSError) as exc:
        log.warning("event=signal_not_sent channel=%s error=%s", channel, exc)
        return False
    return True


async def listen(
    *channels: str, url: str | None = None, ready: asyncio.Event | None = None
) -> AsyncIterator[Signal]:
    """Yield notices of these channels for ever.

    Reconnects by itself, losing what was sent meanwhile. `ready` is set while the subscription
    stands. End it by cancelling the task or `aclose()`.
    """
    delay = FIRST_RETRY_SECONDS
    ready = ready or asyncio.Event()
    while True:
        try:
            async with aclosing(_listen_once(channels, url, ready)) as signals:
                async for signal in signals:
                    delay = FIRST_RETRY_SECONDS
                    yield signal
        except (RedisError, OSError) as exc:
            log.warning("event=signals_interrupted retry_seconds=%.2f error=%s", delay, exc)
        finally:
            ready.clear()
        await asyncio.sleep(delay)
        delay = min(delay * 2, LAST_RETRY_SECONDS)


async def _listen_once(
    channels: tuple[str, ...], url: str | None, ready: asyncio.Event
) -> AsyncGenerator[Signal]:
    client = new_blocking_client(url)
    try:
        async with client.pubsub() as pubsub:
            await pubsub.subscribe(*(PREFIX + channel for channel in channels))
            async for message in pubsub.listen():
                if message["type"] == "subscribe":
                    ready.set()
                elif message["type"] == "message":
                    name = message["channel"].decode().removeprefix(PREFIX)
                    yield Signal(name, message["data"].decode("utf-8", "replace"))
    finally:
        await client.aclose()
