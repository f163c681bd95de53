from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis.exceptions import ResponseError

from souveraine.events import log
from souveraine.events.connection import async_client, sync_client
from souveraine.events.log import Batch, Event, Fenced


def frames(*numbers: int) -> list[tuple[str, bytes]]:
    return [("frame", b"%d" % number) for number in numbers]


def test_it_works(run_id: uuid.UUID) -> None:
    assert log.append(run_id, 1, frames(10, 11)) == [1, 2]
    assert log.append(run_id, 1, [("note", b"\x00\xff")]) == [3]
    assert log.read(run_id) == [
        Event(1, "frame", b"10"),
        Event(2, "frame", b"11"),
        Event(3, "note", b"\x00\xff"),
    ]
    assert [event.seq for event in log.read(run_id, after=1, count=1)] == [2]
    assert log.read(run_id, after=3) == []
    assert log.last_seq(run_id) == 3
    assert log.exists(run_id)


async def test_it_works_from_coroutines(run_id: uuid.UUID) -> None:
    assert await log.append_async(run_id, 1, frames(10)) == [1]
    assert await log.read_async(run_id) == [Event(1, "frame", b"10")]
    assert await log.last_seq_async(run_id) == 1
    assert await log.exists_async(run_id)


def test_unknown_run_is_empty(run_id: uuid.UUID) -> None:
    assert log.read(run_id) == []
    assert log.last_seq(run_id) == 0
    assert log.end_seq(run_id) is None
    assert not log.exists(run_id)
    assert not log.expire(run_id, 60)
    assert not log.exists(run_id)


def test_malformed_run_id_is_refused() -> None:
    with pytest.raises(ValueError, match="UUID"):
        log.append("run-1}:x", 1, frames(1))


def test_nothing_to_append_is_no_call(run_id: uuid.UUID) -> None:
    assert log.append(run_id, 1, []) == []
    assert not log.exists(run_id)


def test_stale_fence_is_refused_and_writes_nothing(run_id: uuid.UUID) -> None:
    log.append(run_id, 1, frames(1))
    assert log.append(run_id, 2, frames(2)) == [2]
    with pytest.raises(Fenced):
        log.append(run_id, 1, frames(99))
    assert log.append(run_id, 2, frames(3)) == [3]
    assert [event.data for event in log.read(run_id)] == [b"1", b"2", b"3"]


async def test_stale_fence_is_refused_in_coroutines(run_id: uuid.UUID) -> None:
    await log.append_async(run_id, 2, frames(1))
    with pytest.raises(Fenced):
        await log.append_async(run_id, 1, frames(2))


def test_seq_continues_above_the_high_water_mark(run_id: uuid.UUID) -> None:
    assert log.append(run_id, 1, frames(1), min_seq=40) == [41]
    assert log.append(run_id, 1, frames(2), min_seq=7) == [42]


def test_seq_continues_when_only_the_hash_was_lost(run_id: uuid.UUID) -> None:
    log.append(run_id, 1, frames(1, 2, 3))
    sync_client().delete(log.meta_key(run_id))
    assert log.append(run_id, 1, frames(4)) == [4]


def test_long_lists_keep_their_order(run_id: uuid.UUID) -> None:
    numbers = range(log.ENTRIES_PER_CALL * 2 + 7)
    assert log.append(run_id, 1, frames(*numbers)) == [number + 1 for number in numbers]
    assert [int(event.data) for event in log.read(run_id, count=5000)] == list(numbers)


def test_threads_never_share_a_seq(run_id: uuid.UUID) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda number: log.append(run_id, 1, frames(number, -1)), range(100))
    seqs = sorted(seq for pair in results for seq in pair)
    assert seqs == list(range(1, 201))


async def test_repeated_batch_is_written_once(run_id: uuid.UUID) -> None:
    first = log.append_call(Batch(run_id, 1, frames(1, 2)), "writer", "7")
    other = log.append_call(Batch(run_id, 1, frames(3)), "other", "7")
    client = async_client()
    assert await log.run_append(client, *first) == [1, 2]
    assert await log.run_append(client, *other) == [3]
    assert await log.run_append(client, *first) == [1, 2]
    assert [event.data for event in log.read(run_id)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("ended_before", [False, True])
async def test_repeated_batch_with_an_end(run_id: uuid.UUID, ended_before: bool) -> None:
    if ended_before:
        log.append(run_id, 1, [(log.END, b"first")])
    call = log.append_call(Batch(run_id, 1, [*frames(1), (log.END, b"e"), *frames(2)]), "w", "1")
    client = async_client()
    expected = [1, 1, 2] if ended_before else [1, 2, 3]
    assert await log.run_append(client, *call) == expected
    assert await log.run_append(client, *call) == expected
    assert len(log.read(run_id)) == max(expected)


def test_the_end_is_written_once(run_id: uuid.UUID) -> None:
    log.append(run_id, 1, frames(1))
    assert log.append(run_id, 1, [(log.END, b"completed")]) == [2]
    assert log.append(run_id, 1, [(log.END, b"failed"), *frames(3)]) == [2, 3]
    assert [event.data for event in log.read(run_id)] == [b"1", b"completed", b"3"]
    assert log.end_seq(run_id) == 2


def test_of_two_who_end_a_stream_at_once_only_one_is_heard(run_id: uuid.UUID) -> None:
    log.append(run_id, 1, frames(1))
    ending = [*frames(2, 3), (log.END, b"e")]
    assert log.append(run_id, 2, ending) == [2, 3, 4]
    assert log.append(run_id, 2, ending) == [4, 4, 4]
    assert [event.data for event in log.read(run_id)] == [b"1", b"2", b"3", b"e"]


def test_a_stream_that_lost_entries_has_a_gap(run_id: uuid.UUID) -> None:
    log.append(run_id, 1, frames(1), min_seq=1)
    log.append(run_id, 1, frames(2), min_seq=2)
    assert not log.has_gap(run_id)
    sync_client().delete(log.stream_key(run_id), log.meta_key(run_id))
    log.append(run_id, 1, frames(3), min_seq=2)
    assert log.has_gap(run_id)


def _ttls(run_id: uuid.UUID) -> tuple[int, int]:
    client = sync_client()
    return client.ttl(log.stream_key(run_id)), client.ttl(log.meta_key(run_id))


def test_streams_vanish_some_time_after_their_end(run_id: uuid.UUID) -> None:
    log.append(run_id, 1, frames(1))
    assert min(_ttls(run_id)) > log.FINISHED_TTL_SECONDS
    log.append(run_id, 1, [(log.END, b"{}")])
    log.append(run_id, 1, frames(2))
    assert min(_ttls(run_id)) > log.FINISHED_TTL_SECONDS - 5
    assert max(_ttls(run_id)) <= log.FINISHED_TTL_SECONDS


def test_chosen_expiry_outlasts_later_appends(run_id: uuid.UUID) -> None:
    log.append(run_id, 1, frames(1))
    assert log.finish(run_id)
    assert max(_ttls(run_id)) <= log.FINISHED_TTL_SECONDS
    assert log.expire(run_id, 60)
    log.append(run_id, 1, frames(2))
    log.append(run_id, 1, [(log.END, b"{}")])
    assert 50 < min(_ttls(run_id)) <= max(_ttls(run_id)) <= 60


def test_stream_is_capped(run_id: uuid.UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CAP_ENTRIES", 100)
    seqs = log.append(run_id, 1, frames(*range(1000)))
    kept = log.read(run_id, count=5000)
    assert 100 <= len(kept) < 500
    assert kept[-1].seq == seqs[-1] == 1000


def test_batches_for_several_runs(run_id: uuid.UUID) -> None:
    other, fenced = uuid.uuid4(), uuid.uuid4()
    log.append(fenced, 5, frames(1))
    sync_client().script_flush()
    batches = [
        Batch(run_id, 1, frames(1, 2)),
        Batch(fenced, 4, frames(2)),
        Batch(other, 1, frames(3), min_seq=9),
    ]
    first, refused, third = log.append_batches(batches)
    assert (first, third) == ([1, 2], [10])
    assert isinstance(refused, Fenced)
    assert len(log.read(fenced)) == 1


async def test_batches_from_coroutines(run_id: uuid.UUID) -> None:
    await async_client().script_flush()
    other = uuid.uuid4()
    batches = [Batch(run_id, 1, frames(1)), Batch(other, 1, frames(2))]
    assert await log.append_batches_async(batches) == [[1], [1]]


def test_batches_take_each_run_once(run_id: uuid.UUID) -> None:
    with pytest.raises(ValueError, match="once"):
        log.append_batches([Batch(run_id, 1, frames(1)), Batch(str(run_id), 1, frames(2))])
    with pytest.raises(ValueError, match="500"):
        log.append_batches([Batch(run_id, 1, frames(*range(501)))])


def test_foreign_errors_pass(run_id: uuid.UUID) -> None:
    sync_client().set(log.meta_key(run_id), "not a hash", ex=60)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        log.append(run_id, 1, frames(1))
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        log.append_batches([Batch(run_id, 1, frames(1))])
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        asyncio.run(log.append_async(run_id, 1, frames(1)))
