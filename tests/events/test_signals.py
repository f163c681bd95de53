from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from souveraine.events import signals
from souveraine.events.signals import Signal, listen, publish
from tests.events.redis_server import RedisServer


@asynccontextmanager
async def listening(*channels: str) -> AsyncIterator[tuple[asyncio.Queue[Signal], asyncio.Event]]:
    heard: asyncio.Queue[Signal] = asyncio.Queue()
    ready = asyncio.Event()

    async def hear() -> None:
        async for signal in listen(*channels, ready=ready):
            heard.put_nowait(signal)

    task = asyncio.create_task(hear())
    await asyncio.wait_for(ready.wait(), 5)
    yield heard, ready
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_notices_reach_listeners_of_their_channel() -> None:
    cancel, other = f"cancel-{uuid.uuid4()}", f"other-{uuid.uuid4()}"
    async with listening(cancel) as (heard, _), listening(cancel, other) as (both, _):
        assert publish(other, "x")
        assert publish(cancel, "run-é")
        assert await asyncio.wait_for(heard.get(), 5) == Signal(cancel, "run-é")
        assert {await asyncio.wait_for(both.get(), 5) for _ in range(2)} == {
            Signal(cancel, "run-é"),
            Signal(other, "x"),
        }
        assert heard.empty()


async def test_listener_comes_back_after_a_restart(own_redis: RedisServer) -> None:
    async with listening("cancel") as (heard, ready):
        own_redis.stop()
        async with asyncio.timeout(5):
            while ready.is_set():
                await asyncio.sleep(0.01)
        own_redis.start()
        await asyncio.wait_for(ready.wait(), 5)
        publish("cancel", "again")
        assert await asyncio.wait_for(heard.get(), 5) == Signal("cancel", "again")


def test_sender_does_not_fail_without_redis(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.stop()
    started = time.monotonic()
    assert publish("cancel", "x") is False
    assert time.monotonic() - started < 3
    assert signals.__name__ in {record.name for record in caplog.records}
