from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from souveraine.errors import Unavailable
from souveraine.events import connection


async def test_one_client_per_event_loop() -> None:
    async def client_id() -> int:
        first, second = connection.async_client(), connection.async_client()
        assert first is second
        assert await first.ping()
        await connection.close_async_clients()
        return id(first)

    mine = connection.async_client()
    with ThreadPoolExecutor(1) as pool:
        other = await asyncio.get_running_loop().run_in_executor(pool, asyncio.run, client_id())
    assert other != id(mine)
    assert await mine.ping()


async def test_closed_clients_are_replaced() -> None:
    first = connection.async_client()
    await connection.close_async_clients()
    await connection.close_async_clients()
    second = connection.async_client()
    assert second is not first
    assert await second.ping()
    assert connection.sync_client() is connection.sync_client()
    connection.close_sync_clients()
    assert connection.sync_client().ping()


async def test_cancelled_callers_stop_and_do_not_use_up_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "POOL_SIZE", 2)
    monkeypatch.setattr(connection, "POOL_WAIT_SECONDS", 1.0)
    client = connection.async_client()
    chance = random.Random(1)
    for _ in range(150):
        calls = [asyncio.create_task(client.ping()) for _ in range(6)]
        told: set[asyncio.Task[Any]] = set()
        for call in calls * 2:
            for _ in range(chance.randint(0, 12)):
                await asyncio.sleep(0)
            if call.cancel():
                told.add(call)
        await asyncio.gather(*calls, return_exceptions=True)
        assert all(call.cancelled() for call in told)
    assert await client.ping()
    assert await client.ping()


async def test_connection_given_back_under_a_cancel_is_not_lost() -> None:
    pool = connection.async_client().connection_pool
    taken = await pool.get_connection()
    async with pool._lock:  # as while another caller gives a broken connection back
        giving = asyncio.create_task(pool.release(taken))
        await asyncio.sleep(0.01)
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert taken not in pool._in_use_connections


async def test_ended_loops_are_forgotten() -> None:
    async def use() -> None:
        connection.async_client()

    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            await asyncio.get_running_loop().run_in_executor(pool, asyncio.run, use())
    await connection.close_async_clients()
    connection.async_client()
    assert [loop for loop in connection._async_clients if loop.is_closed()] == []


async def test_only_blocking_readers_wait_without_limit() -> None:
    blocking = connection.new_blocking_client()
    assert blocking.connection_pool.connection_kwargs["socket_timeout"] is None
    shared = connection.async_client().connection_pool.connection_kwargs
    assert shared["socket_timeout"] == connection.COMMAND_TIMEOUT_SECONDS
    await blocking.aclose()


def test_missing_url_says_what_to_do(settings: Any) -> None:
    settings.REDIS_URL = ""
    with pytest.raises(Unavailable, match="REDIS_URL"):
        connection.sync_client()
