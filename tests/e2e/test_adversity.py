"""A worker that stalls, a Redis that loses everything, a locked database: turns end well all the same."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from souveraine.testing.stack import Stack, stack
from tests.e2e.test_crash import Stream, listed, make_conversation, texts_after_retraction
from tests.e2e.test_python_sdk import script

LEASE_SECONDS = 5.0
WHOLE = " ".join(f"w{i}" for i in range(30))
COUNT = script("count", words=30, delay_ms=100)


def query(server: Stack, text: str) -> list[Any]:
    with closing(sqlite3.connect(server.folder / "data" / "database.sqlite3", timeout=20)) as found:
        return found.execute(text).fetchall()


def send(server: Stack, conversation: str, text: str) -> Stream:
    stream = Stream(server, conversation, text)  # type: ignore[arg-type]
    stream.start()
    return stream


def ended(stream: Stream) -> dict[str, str]:
    """Wait for the end and return what is shown."""
    stream.join(100)
    assert not stream.is_alive(), "the stream must end"
    assert stream.frames[-1] == "[DONE]", stream.frames[-3:]
    return texts_after_retraction(stream.frames)


def replay(server: Stack, stream: Stream) -> list[Any]:
    """Read the run's stream from its beginning."""
    run = next(f["run_id"] for f in stream.frames if isinstance(f, dict) and f.get("run_id"))
    url, frames = f"{server.url}/v1/runs/{run}/stream", []
    with httpx.stream("POST", url, json={"starting_after": 0}, timeout=30) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                frames.append(json.loads(line[6:]))
    return frames


def assert_next_works(server: Stack, conversation: str) -> None:
    assert list(ended(send(server, conversation, script("next", text="It works."))).values()) == [
        "It works."
    ]
    assert listed(server, conversation)[-1] == ("assistant_message", "It works.")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[Stack]:
    """A web process and two workers on SQLite."""
    with stack(lease_seconds=LEASE_SECONDS) as made:
        for command in ("web", "worker", "worker"):
            made.start(command)
        made.wait_healthy()
        yield made


def test_a_stalled_worker_writes_nothing_once_its_lease_has_moved(server: Stack) -> None:
    _, conversation = make_conversation(server)  # type: ignore[arg-type]
    stream = send(server, conversation, COUNT)
    stream.wait_for("assistant_message", 5)
    ((owner,),) = query(server, "SELECT owner FROM conversations_run WHERE status = 'running'")
    stalled = int(owner.split(":")[1])
    os.kill(stalled, signal.SIGSTOP)
    try:
        shown = ended(stream)
        counts = "SELECT (SELECT count(*) FROM conversations_message), (SELECT count(*) FROM conversations_checkpoint)"
        before, frames = query(server, counts), replay(server, stream)
    finally:
        os.kill(stalled, signal.SIGCONT)
    deadline = time.monotonic() + 20
    while "event=run_" not in server.log("worker").read_text():
        assert time.monotonic() < deadline, "the stalled worker notices"
        time.sleep(0.1)
    assert list(shown.values()) == [WHOLE]
    assert list(texts_after_retraction(replay(server, stream)).values()) == [WHOLE]
    assert replay(server, stream) == frames
    assert query(server, counts) == before
    assert [text for _, text in listed(server, conversation)] == [COUNT, WHOLE]  # type: ignore[arg-type]
    assert_next_works(server, conversation)


def test_redis_killed_with_all_its_data_in_mid_turn(server: Stack) -> None:
    _, conversation = make_conversation(server)  # type: ignore[arg-type]
    stream = send(server, conversation, COUNT)
    stream.wait_for("assistant_message", 8)
    server.kill_redis(loses_data=True)
    time.sleep(1.0)
    server.start_redis()
    assert list(ended(stream).values()) == [WHOLE]
    assert list(texts_after_retraction(replay(server, stream)).values()) == [WHOLE]
    assert [text for _, text in listed(server, conversation)] == [COUNT, WHOLE]  # type: ignore[arg-type]
    assert_next_works(server, conversation)
    server.kill_redis(loses_data=True)
    server.start_redis()
    assert list(texts_after_retraction(replay(server, stream)).values()) == [WHOLE], (
        "from the database"
    )


@contextmanager
def locked(server: Stack, seconds: float) -> Iterator[None]:
    """Hold SQLite's write lock, longer than anybody waits for it."""
    with closing(
        sqlite3.connect(
            server.folder / "data" / "database.sqlite3",
            isolation_level=None,
            check_same_thread=False,
        )
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(seconds, lambda: other.execute("ROLLBACK"))
        timer.start()
        try:
            yield
        finally:
            timer.join()


def test_a_database_locked_beyond_the_busy_timeout(server: Stack) -> None:
    _, conversation = make_conversation(server)  # type: ignore[arg-type]
    _, another = make_conversation(server)  # type: ignore[arg-type]
    stream = send(server, conversation, COUNT)
    stream.wait_for("assistant_message", 5)
    url = f"{server.url}/v1/conversations/{another}/messages"
    body = {"messages": [{"role": "user", "content": "hi", "otid": "locked"}]}
    with locked(server, 24):
        refused = httpx.post(url, json=body, timeout=60)
    assert refused.status_code == 503, refused.text
    assert "locked" in refused.json()["detail"]
    assert list(ended(stream).values()) == [WHOLE]
    assert [text for _, text in listed(server, conversation)] == [COUNT, WHOLE]  # type: ignore[arg-type]
    assert listed(server, another) == []  # type: ignore[arg-type]
    assert_next_works(server, conversation)
    assert_next_works(server, another)


def test_64_open_streams_through_the_death_of_a_worker(server: Stack) -> None:
    """Every client gets every frame once, numbered without a gap, and shows the whole answer."""
    slow = script("count", words=30, delay_ms=200)
    streams = [send(server, make_conversation(server)[1], slow) for _ in range(64)]  # type: ignore[arg-type]
    for stream in streams:
        stream.wait_for("assistant_message", 1)
    ((owner,),) = query(
        server, "SELECT owner FROM conversations_run WHERE status = 'running' LIMIT 1"
    )
    os.kill(int(owner.split(":")[1]), signal.SIGKILL)
    server.start("worker")
    for stream in streams:
        assert list(ended(stream).values()) == [WHOLE]
        numbers = [f["seq_id"] for f in stream.frames if isinstance(f, dict) and f.get("seq_id")]
        assert numbers == list(range(1, len(numbers) + 1))
    kinds = {f["message_type"] for s in streams for f in s.frames if isinstance(f, dict)}
    assert "souveraine_retracted" in kinds, "some of them were in the middle of their answer"
