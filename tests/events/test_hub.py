from __future__ import annotations

import asyncio
import random
import time
import uuid
from typing import Any

import pytest
from redis.asyncio.client import Pipeline

from souveraine.events import hub as hub_module
from souveraine.events import log
from souveraine.events.hub import Hub, Subscription, SubscriptionClosed, get_hub
from tests.events.redis_server import RedisServer


async def add(run_id: uuid.UUID, count: int = 1, **options: Any) -> list[int]:
    return await log.append_async(run_id, 1, [("frame", b"x")] * count, **options)


async def take(subscription: Subscription, count: int, seconds: float = 10) -> list[int]:
    """Collect seqs until there are `count`, and see that no more came than asked for."""
    seqs: list[int] = []
    async with asyncio.timeout(seconds):
        while len(seqs) < count:
            seqs += [event.seq for event in await subscription.next() or []]
    return seqs


async def go_live(subscription: Subscription) -> None:
    while not subscription.is_live:
        assert await subscription.next(0.05) is None


async def test_past_events_then_live_ones(run_id: uuid.UUID) -> None:
    await add(run_id, 3)
    async with get_hub().subscribe(run_id) as subscription:
        assert await take(subscription, 3) == [1, 2, 3]
        assert await subscription.next(0.05) is None
        assert subscription.is_live
        await add(run_id, 2)
        assert await take(subscription, 2) == [4, 5]
        assert subscription.last_seq == 5


async def test_after_leaves_out_what_the_client_has(run_id: uuid.UUID) -> None:
    await add(run_id, 5)
    hub = get_hub()
    late, early, ahead = (hub.subscribe(run_id, after) for after in (4, 0, 7))
    assert await take(late, 1) == [5]
    assert await take(early, 5) == [1, 2, 3, 4, 5]
    await go_live(ahead)
    await add(run_id, 3)
    assert await take(late, 3) == await take(early, 3) == [6, 7, 8]
    assert await take(ahead, 1) == [8]


async def test_newcomer_gets_what_a_subscriber_ahead_of_the_stream_skips(run_id: uuid.UUID) -> None:
    hub = get_hub()
    ahead, newcomer = hub.subscribe(run_id, 7), hub.subscribe(run_id)
    await add(run_id, 2)
    await go_live(ahead)
    assert await take(newcomer, 2) == [1, 2]
    await go_live(newcomer)
    await add(run_id, 6)
    assert await take(newcomer, 6) == [3, 4, 5, 6, 7, 8]
    assert await take(ahead, 1) == [8]


async def test_long_past_is_read_in_order(run_id: uuid.UUID) -> None:
    await add(run_id, 1300)
    async with get_hub().subscribe(run_id) as subscription:
        assert await take(subscription, 1300) == list(range(1, 1301))


async def test_iterating_ends_with_close(run_id: uuid.UUID) -> None:
    await add(run_id, 2)
    subscription = get_hub().subscribe(run_id)
    seen: list[int] = []
    async with asyncio.timeout(5):
        async for events in subscription:
            seen += [event.seq for event in events]
            if len(seen) == 2:
                await add(run_id)
            else:
                subscription.close()
    assert seen == [1, 2, 3]


async def test_close_wakes_a_waiting_reader(run_id: uuid.UUID) -> None:
    hub = get_hub()
    subscription = hub.subscribe(run_id)
    waiting = asyncio.create_task(subscription.next())
    while not subscription.is_live:
        await asyncio.sleep(0.001)
    subscription.close()
    subscription.close()
    with pytest.raises(SubscriptionClosed):
        await asyncio.wait_for(waiting, 1)
    assert hub.subscription_count == 0
    assert hub._streams == {}


async def test_close_during_catching_up_leaves_nothing_behind(run_id: uuid.UUID) -> None:
    hub = get_hub()
    subscription = hub.subscribe(run_id)
    waiting = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    subscription.close()
    with pytest.raises(SubscriptionClosed):
        await asyncio.wait_for(waiting, 2)
    assert hub._streams == {}


async def test_closed_hub_refuses_and_is_replaced(run_id: uuid.UUID) -> None:
    hub = get_hub()
    subscription = hub.subscribe(run_id)
    await subscription.next(0.05)
    await hub.aclose()
    await hub.aclose()
    with pytest.raises(SubscriptionClosed):
        await subscription.next()
    with pytest.raises(SubscriptionClosed):
        hub.subscribe(run_id)
    assert get_hub() is not hub


async def test_new_stream_wakes_the_blocked_reader() -> None:
    hub = get_hub()
    first = hub.subscribe(uuid.uuid4())
    await go_live(first)
    await asyncio.sleep(0.05)  # the shared read now blocks for 5 s
    started = time.monotonic()
    for _ in range(40):
        runs = [uuid.uuid4() for _ in range(random.randint(1, 3))]
        for run_id in runs:
            subscription = hub.subscribe(run_id)
            waiting = asyncio.create_task(take(subscription, 1))
            while not subscription.is_live:
                await asyncio.sleep(0)
            await add(run_id)
            assert await waiting == [1]
    assert time.monotonic() - started < 4


async def test_stream_added_while_a_wake_up_is_under_way_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execute = Pipeline.execute

    async def slowly(self: Any, *arguments: Any, **options: Any) -> Any:
        reply = await execute(self, *arguments, **options)
        await asyncio.sleep(0.2)
        return reply

    hub = get_hub()
    first, second = hub.subscribe(uuid.uuid4()), hub.subscribe(uuid.uuid4())
    await go_live(first)
    await asyncio.sleep(0.05)
    monkeypatch.setattr(Pipeline, "execute", slowly)
    await go_live(second)
    run_id = uuid.uuid4()
    third = hub.subscribe(run_id)
    waiting = asyncio.create_task(take(third, 1))
    while not third.is_live:
        await asyncio.sleep(0)
    await add(run_id)
    assert await asyncio.wait_for(waiting, 2) == [1]


async def test_slow_subscriber_holds_up_nobody(
    run_id: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "QUEUE_EVENTS", 150)
    hub = get_hub()
    slow, quick = hub.subscribe(run_id), hub.subscribe(run_id)
    await go_live(slow)
    await go_live(quick)
    for round_number in range(10):
        await add(run_id, 60)
        assert len(await take(quick, 60, seconds=2)) == 60, round_number
    assert not slow.is_live
    assert quick.is_live
    assert len(slow._queue) <= 150
    assert await take(slow, 600) == list(range(1, 601))
    await go_live(slow)
    await add(run_id)
    assert await take(slow, 1) == await take(quick, 1) == [601]


async def test_subscriptions_survive_an_emptied_redis(
    own_redis: RedisServer, run_id: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "LAST_RETRY_SECONDS", 0.1)
    hub = get_hub()
    live, behind = hub.subscribe(run_id), hub.subscribe(run_id)
    await add(run_id, 5)
    assert await take(live, 5) == [1, 2, 3, 4, 5]
    await go_live(live)
    own_redis.stop()
    assert await behind.next(0.1) is None
    assert await live.next(0.1) is None
    own_redis.start()
    await add(run_id, 2, min_seq=5)
    assert await take(live, 2) == await take(behind, 2) == [6, 7]
    newcomer = hub.subscribe(uuid.uuid4())
    await go_live(newcomer)


async def test_subscriber_ahead_of_a_shortened_stream_goes_live(run_id: uuid.UUID) -> None:
    """Seen events vanish from Redis: whoever was catching up must not read in circles."""
    hub = get_hub()
    await add(run_id, 5)
    first = hub.subscribe(run_id)
    assert await take(first, 5) == [1, 2, 3, 4, 5]
    await go_live(first)
    await hub_module.async_client().delete(log.stream_key(run_id), log.meta_key(run_id))
    second = hub.subscribe(run_id)
    await go_live(second)
    await add(run_id, min_seq=5)
    assert await take(first, 1) == await take(second, 1) == [6]


async def test_failed_reader_is_replaced(
    run_id: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "LAST_RETRY_SECONDS", 0.05)
    hub = get_hub()
    subscription = hub.subscribe(run_id)
    await go_live(subscription)
    hand_out, failures = Hub._hand_out, iter([True])

    def fail_once(self: Hub, *arguments: Any) -> None:
        if next(failures, False):
            raise LookupError("a fault in the reader")
        hand_out(self, *arguments)

    monkeypatch.setattr(Hub, "_hand_out", fail_once)
    await add(run_id, 2)
    assert await take(subscription, 2) == [1, 2]
    await go_live(subscription)
    await add(run_id)
    assert await take(subscription, 1) == [3]


async def _append_for_a_while(run_id: uuid.UUID, total: int, chance: random.Random) -> None:
    written = 0
    while written < total:
        written = (await add(run_id, chance.randint(1, 40)))[-1]
        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.004]))


async def _come_and_go(run_id: uuid.UUID, total: int, chance: random.Random) -> int:
    """Read the run to `total` as a client that often leaves and resumes; return its visits."""
    last, visits = chance.choice([0, 0, 17]), 0
    while last < total:
        visits += 1
        with_pauses = chance.random() < 0.3
        async with get_hub().subscribe(run_id, last) as subscription:
            for _ in range(chance.randint(1, 30)):
                events = await subscription.next(chance.choice([0.0005, 0.01, 0.5]))
                for event in events or []:
                    assert event.seq == last + 1
                    last = event.seq
                if with_pauses:
                    await asyncio.sleep(0.02)
    return visits


@pytest.mark.parametrize("seed", range(3))
async def test_no_gap_and_no_repeat_under_stress(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "QUEUE_EVENTS", 120)
    monkeypatch.setattr(hub_module, "CATCH_UP_EVENTS", 50)
    chance = random.Random(seed)
    runs, total = [uuid.uuid4() for _ in range(3)], 1200
    async with asyncio.timeout(60):
        visits = await asyncio.gather(
            *(_append_for_a_while(run_id, total, chance) for run_id in runs),
            *(_come_and_go(run_id, total, chance) for run_id in runs * 4),
        )
    assert sum(visit for visit in visits if visit) > 12
    assert get_hub().subscription_count == 0
    assert get_hub()._streams == {}
