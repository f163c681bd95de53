"""What a run has streamed: one Redis stream per run, written only through one fenced script.

Workers write through `souveraine.events.writer`, short additions (accept, sweeper, consciousness)
use `append`; the web reads through `souveraine.events.hub`. An entry's seq is Letta's `seq_id` and
the SSE `id:`. The log is a copy: when it is gone, the stream is rebuilt from the messages in the
database.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, ResponseError

from souveraine.events.connection import async_client, sync_client

FRAME = "frame"  # data: compact JSON of one wire frame
END = "end"  # data: JSON {"status", "stop_reason"}; the last entry, written at most once

RUNNING_TTL_SECONDS = 48 * 3600  # longer than any turn; bounds what a dead run leaves behind
FINISHED_TTL_SECONDS = 3 * 3600
CAP_ENTRIES = 100_000  # of one stream, approximate; the oldest are dropped
ENTRIES_PER_CALL = 500  # Redis serves nobody else during a script; 500 entries take about 2 ms
ONCE_SLOTS = 256  # how many of the last one-off appends are remembered against repetition

APPEND_SOURCE = (Path(__file__).parent / "append.lua").read_text(encoding="utf-8")
# `expire` also has to outlast later appends, so the chosen time is kept in the hash.
EXPIRE_SOURCE = """
if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
redis.call('HSET', KEYS[2], 'ttl', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[1])
return redis.call('EXPIRE', KEYS[2], ARGV[1])
"""

Entry: TypeAlias = tuple[str, bytes]
RunId: TypeAlias = uuid.UUID | str


class Fenced(Exception):
    """Another worker has taken the run over; whoever gets this stops writing to the run."""


class Event(NamedTuple):
    """One entry of a run's stream."""

    seq: int
    kind: str
    data: bytes


class Batch(NamedTuple):
    """Entries for one run, as `append_batches` takes them."""

    run_id: RunId
    fence: int
    entries: Sequence[Entry]
    min_seq: int = 0


def stream_key(run_id: RunId) -> str:
    """Return the key of the run's stream. Raises ValueError when `run_id` is no UUID."""
    return f"souveraine:run:{{{uuid.UUID(str(run_id))}}}:events"


def meta_key(run_id: RunId) -> str:
    """Return the key of the hash beside the stream: fence, seq, end, ttl, last batches."""
    return f"souveraine:run:{{{uuid.UUID(str(run_id))}}}:meta"


def parse_entries(raw: Iterable[tuple[bytes, dict[bytes, bytes] | None]]) -> list[Event]:
    """Turn the reply of XRANGE or of one stream in XREAD into events."""
    return [
        Event(
            int(entry_id.partition(b"-")[0]), fields.get(b"k", b"").decode(), fields.get(b"d", b"")
        )
        for entry_id, fields in raw
        if fields is not None
    ]


def append_call(
    batch: Batch, writer: str | None = None, token: str | None = None
) -> tuple[list[str], list[Any]]:
    """Return keys and arguments of the append script for one batch.

    `writer` and `token` name the batch: sent again by the same writer right after, it is not
    written again and gets the same seqs. Without them the batch is an appender of its own.
    """
    token = token or uuid.uuid4().hex
    writer = writer or f"once{int(token[:8], 16) % ONCE_SLOTS}"
    head = [
        int(batch.fence),
        int(batch.min_seq),
        RUNNING_TTL_SECONDS,
        FINISHED_TTL_SECONDS,
        CAP_ENTRIES,
        writer,
        token,
    ]
    flat = [part for kind, data in batch.entries for part in (kind, data)]
    return [stream_key(batch.run_id), meta_key(batch.run_id)], head + flat


def raise_fenced(error: ResponseError) -> None:
    """Raise Fenced when the script refused the fence; return for any other error."""
    if str(error).startswith("FENCED"):
        raise Fenced(str(error).removeprefix("FENCED ")) from None


def _chunks(batch: Batch) -> list[Batch]:
    entries, size = batch.entries, ENTRIES_PER_CALL
    return [
        batch._replace(entries=entries[start : start + size])
        for start in range(0, len(entries), size)
    ]


def append(
    run_id: RunId, fence: int, entries: Sequence[Entry], *, min_seq: int = 0, url: str | None = None
) -> list[int]:
    """Append (kind, data) entries and return their seqs, which go up by one from the last one.

    `min_seq` is the run row's high-water mark: seqs continue above it when Redis has lost the
    stream. A lost reply is repeated without writing twice. Up to 500 entries are atomic; more are
    several calls. Raises Fenced when `fence` is older than one seen before, and redis' own errors.
    """
    script = sync_client(url).register_script(APPEND_SOURCE)
    seqs: list[int] = []
    for chunk in _chunks(Batch(run_id, fence, entries, min_seq)):
        keys, args = append_call(chunk)
        try:
            seqs += script(keys=keys, args=args)
        except ResponseError as error:
            raise_fenced(error)
            raise
    return seqs


async def append_async(
    run_id: RunId,
    fence: int,
    entries: Sequence[Entry],
    *,
    min_seq: int = 0,
    url: str | None = None,
) -> list[int]:
    """Append as `append` does, from a coroutine."""
    client = async_client(url)
    seqs: list[int] = []
    for chunk in _chunks(Batch(run_id, fence, entries, min_seq)):
        seqs += await run_append(client, *append_call(chunk))
    return seqs


async def run_append(client: redis.asyncio.Redis, keys: list[str], args: list[Any]) -> list[int]:
    """Run the append script with prepared arguments. Raises Fenced and redis' own errors."""
    script = client.register_script(APPEND_SOURCE)
    try:
        seqs: list[int] = await script(keys=keys, args=args)
    except ResponseError as error:
        raise_fenced(error)
        raise
    return seqs


Outcome: TypeAlias = list[int] | Fenced


def append_batches(batches: Sequence[Batch], *, url: str | None = None) -> list[Outcome]:
    """Append to several runs in one round trip; the outcomes stand in the order of the batches.

    A refused batch has its Fenced as outcome and does not stop the others. Each run may occur once
    and a batch may have up to 500 entries. Raises ValueError otherwise, and redis' own errors.
    """
    calls = _checked_calls(batches)
    client = sync_client(url)
    script = client.register_script(APPEND_SOURCE)
    for _attempt in range(2):
        pipeline = client.pipeline(transaction=False)
        for keys, args in calls:
            pipeline.evalsha(script.sha, len(keys), *keys, *args)
        replies = pipeline.execute(raise_on_error=False)
        if not any(isinstance(reply, NoScriptError) for reply in replies):
            break
        client.script_load(APPEND_SOURCE)
    return [_outcome(reply) for reply in replies]


async def append_batches_async(
    batches: Sequence[Batch], *, url: str | None = None
) -> list[Outcome]:
    """Append to several runs as `append_batches` does, from a coroutine."""
    calls = _checked_calls(batches)
    client = async_client(url)
    script = client.register_script(APPEND_SOURCE)
    for _attempt in range(2):
        pipeline = client.pipeline(transaction=False)
        for keys, args in calls:
            pipeline.evalsha(script.sha, len(keys), *keys, *args)
        replies = await pipeline.execute(raise_on_error=False)
        if not any(isinstance(reply, NoScriptError) for reply in replies):
            break
        await client.script_load(APPEND_SOURCE)
    return [_outcome(reply) for reply in replies]


def _checked_calls(batches: Sequence[Batch]) -> list[tuple[list[str], list[Any]]]:
    if len({stream_key(batch.run_id) for batch in batches}) != len(batches):
        raise ValueError("append_batches takes each run once; put its entries into one batch")
    if any(len(batch.entries) > ENTRIES_PER_CALL for batch in batches):
        raise ValueError(f"a batch may have up to {ENTRIES_PER_CALL} entries; use append")
    return [append_call(batch) for batch in batches]


def _outcome(reply: Any) -> Outcome:
    if isinstance(reply, ResponseError):
        try:
            raise_fenced(reply)
        except Fenced as fenced:
            return fenced
    if isinstance(reply, Exception):
        raise reply
    return list(reply)


def read(run_id: RunId, after: int = 0, count: int = 500, *, url: str | None = None) -> list[Event]:
    """Return up to `count` events with seq > `after`, oldest first; [] when there are none."""
    raw: Any = sync_client(url).xrange(stream_key(run_id), f"{after + 1}-0", "+", count)
    return parse_entries(raw)


async def read_async(
    run_id: RunId, after: int = 0, count: int = 500, *, url: str | None = None
) -> list[Event]:
    """Read as `read` does, from a coroutine."""
    raw: Any = await async_client(url).xrange(stream_key(run_id), f"{after + 1}-0", "+", count)
    return parse_entries(raw)


def last_seq(run_id: RunId, *, url: str | None = None) -> int:
    """Return the seq given out last; 0 when Redis knows nothing of the run."""
    return int(sync_client(url).hget(meta_key(run_id), "seq") or 0)


async def last_seq_async(run_id: RunId, *, url: str | None = None) -> int:
    """Return the seq given out last; 0 when Redis knows nothing of the run."""
    return int(await async_client(url).hget(meta_key(run_id), "seq") or 0)


def end_seq(run_id: RunId, *, url: str | None = None) -> int | None:
    """Return the seq of the run's `end` entry, None while there is none."""
    found = sync_client(url).hget(meta_key(run_id), "end")
    return None if found is None else int(found)


def has_gap(run_id: RunId, *, url: str | None = None) -> bool:
    """Tell whether Redis has lost entries of the stream that somebody may not have read."""
    return bool(sync_client(url).hexists(meta_key(run_id), "gap"))


async def has_gap_async(run_id: RunId, *, url: str | None = None) -> bool:
    """Tell as `has_gap` does, from a coroutine."""
    return bool(await async_client(url).hexists(meta_key(run_id), "gap"))


def fence_off(run_id: RunId, fence: int, *, url: str | None = None) -> None:
    """Refuse all appends with an older fence from now on. Raises Fenced when `fence` is itself too old."""
    (outcome,) = append_batches([Batch(run_id, fence, [])], url=url)
    if isinstance(outcome, Fenced):
        raise outcome


async def fence_off_async(run_id: RunId, fence: int, *, url: str | None = None) -> None:
    """Refuse older fences as `fence_off` does, from a coroutine."""
    (outcome,) = await append_batches_async([Batch(run_id, fence, [])], url=url)
    if isinstance(outcome, Fenced):
        raise outcome


async def ends_async(run_id: RunId, *, url: str | None = None) -> tuple[Event | None, Event | None]:
    """Return the oldest and the newest event that Redis keeps of the run; None, None without any."""
    pipeline = async_client(url).pipeline(transaction=False)
    pipeline.xrange(stream_key(run_id), "-", "+", 1)
    pipeline.xrevrange(stream_key(run_id), "+", "-", 1)
    first, last = [parse_entries(raw) for raw in await pipeline.execute()]
    return (first[0], last[0]) if first and last else (None, None)


def exists(run_id: RunId, *, url: str | None = None) -> bool:
    """Tell whether Redis still has events of the run."""
    return bool(sync_client(url).exists(stream_key(run_id)))


async def exists_async(run_id: RunId, *, url: str | None = None) -> bool:
    """Tell whether Redis still has events of the run."""
    return bool(await async_client(url).exists(stream_key(run_id)))


def expire(run_id: RunId, seconds: int, *, url: str | None = None) -> bool:
    """Let the run's stream vanish after `seconds`, also when something is appended later.

    False when there is no stream. An `end` entry does this by itself (3 h).
    """
    script = sync_client(url).register_script(EXPIRE_SOURCE)
    return bool(script(keys=[stream_key(run_id), meta_key(run_id)], args=[int(seconds)]))


def finish(run_id: RunId, *, url: str | None = None) -> bool:
    """Keep the stream for 3 h from now; False when there is none."""
    return expire(run_id, FINISHED_TTL_SECONDS, url=url)
