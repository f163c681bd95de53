from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError

from souveraine.errors import Unavailable
from souveraine.events import log, writer
from souveraine.events.log import Fenced
from souveraine.events.writer import EventWriter
from tests.events.redis_server import RedisServer


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LAST_RETRY_SECONDS", 0.1)


async def emit_numbers(target: EventWriter, start: int, stop: int) -> None:
    for number in range(start, stop):
        await target.emit("frame", b"%d" % number)


def numbers_in(run_id: uuid.UUID) -> list[int]:
    return [int(event.data) for event in log.read(run_id, count=100_000)]


async def test_it_works(run_id: uuid.UUID) -> None:
    async with EventWriter(run_id, 1) as target:
        await emit_numbers(target, 0, 1200)
        assert await target.flush() == 1200
        assert numbers_in(run_id) == list(range(1200))
        await target.emit(log.END, b"{}")
    assert log.end_seq(run_id) == 1201


async def test_emit_returns_without_waiting(run_id: uuid.UUID) -> None:
    target = EventWriter(run_id, 1)
    for number in range(100):
        with pytest.raises(StopIteration):  # the coroutine ends at its first step
            target.emit("frame", b"%d" % number).send(None)
    assert target.pending == 100
    await target.aclose()
    assert target.pending == 0
    assert len(numbers_in(run_id)) == 100


async def test_entries_go_out_without_flush(run_id: uuid.UUID) -> None:
    async with EventWriter(run_id, 1) as target:
        await target.emit("frame", b"1")
        async with asyncio.timeout(2):
            while not await log.exists_async(run_id):
                await asyncio.sleep(0.005)


async def test_continues_above_the_high_water_mark(run_id: uuid.UUID) -> None:
    async with EventWriter(run_id, 1, min_seq=80) as target:
        await target.emit("frame", b"1")
        assert await target.flush() == 81


async def test_taken_over_writer_is_told(run_id: uuid.UUID) -> None:
    target = EventWriter(run_id, 1)
    await target.emit("frame", b"1")
    await target.flush()
    log.append(run_id, 2, [("frame", b"2")])
    await target.emit("frame", b"99")
    with pytest.raises(Fenced):
        await target.flush()
    with pytest.raises(Fenced):
        await target.emit("frame", b"100")
    with pytest.raises(Fenced):
        await target.aclose()
    assert numbers_in(run_id) == [1, 2]


async def test_closed_writer_refuses(run_id: uuid.UUID) -> None:
    target = EventWriter(run_id, 1)
    await target.aclose()
    await target.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await target.emit("frame", b"1")


async def test_malformed_run_id_is_refused() -> None:
    with pytest.raises(ValueError, match="UUID"):
        EventWriter("nonsense", 1)


async def test_unsendable_data_fails_instead_of_hanging(run_id: uuid.UUID) -> None:
    target = EventWriter(run_id, 1)
    await target.emit("frame", object())  # type: ignore[arg-type]
    with pytest.raises((redis.DataError, Unavailable)):
        await asyncio.wait_for(target.flush(), 5)


async def test_full_buffer_waits_for_redis(run_id: uuid.UUID, own_redis: RedisServer) -> None:
    own_redis.stop()
    target = EventWriter(run_id, 1, buffer_entries=10)
    await emit_numbers(target, 0, 10)
    blocked = asyncio.create_task(target.emit("frame", b"10"))
    await asyncio.wait([blocked], timeout=0.2)
    assert not blocked.done()
    own_redis.start()
    await asyncio.wait_for(blocked, 5)
    assert await target.flush() == 11
    await target.aclose()
    assert numbers_in(run_id) == list(range(11))


async def test_survives_a_restart_that_loses_everything(
    run_id: uuid.UUID, own_redis: RedisServer
) -> None:
    async with EventWriter(run_id, 3) as target:
        await emit_numbers(target, 0, 50)
        assert await target.flush() == 50
        own_redis.stop()
        await emit_numbers(target, 50, 60)
        await asyncio.sleep(0.05)
        await emit_numbers(target, 60, 70)
        own_redis.start()
        assert await target.flush() == 70
    assert [event.seq for event in log.read(run_id)] == list(range(51, 71))
    assert numbers_in(run_id) == list(range(50, 70))
    with pytest.raises(Fenced):
        log.append(run_id, 2, [("frame", b"x")])


async def test_gives_up_after_a_long_outage(run_id: uuid.UUID, own_redis: RedisServer) -> None:
    own_redis.stop()
    target = EventWriter(run_id, 1, outage_seconds=0.2)
    await target.emit("frame", b"1")
    with pytest.raises(Unavailable, match="Redis"):
        await asyncio.wait_for(target.flush(), 10)
    with pytest.raises(Unavailable):
        await target.emit("frame", b"2")


async def test_close_need_not_wait_for_an_absent_redis(
    run_id: uuid.UUID, own_redis: RedisServer
) -> None:
    own_redis.stop()
    target = EventWriter(run_id, 1)
    await target.emit("frame", b"1")
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await target.aclose(timeout_seconds=0.1)
    assert time.monotonic() - started < 2


class ForgetfulRedis(redis.asyncio.Redis):
    """Loses the replies to some scripts that Redis has carried out."""

    losses = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        reply = await super().execute_command(*args, **options)
        if args[0] == "EVALSHA" and self.losses > 0:
            self.losses -= 1
            raise RedisConnectionError("the reply was lost")
        return reply


async def test_lost_replies_do_not_repeat_entries(run_id: uuid.UUID, event_log: str) -> None:
    client = ForgetfulRedis.from_url(event_log, protocol=2)
    client.losses = 2
    async with EventWriter(run_id, 1, client=client) as target:
        await emit_numbers(target, 0, 700)
        assert await target.flush() == 700
    await client.aclose()
    assert numbers_in(run_id) == list(range(700))
