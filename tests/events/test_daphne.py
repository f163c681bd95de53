"""The hand-off under a real daphne, with the tiny site of `tests.events.site`."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from souveraine.events import log, sse
from tests.events.views import FLOOD_PIECE, FLOOD_PIECES

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
STREAMS = 100
DAPHNE = (sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-v", "0")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def daphne_port(daphne: tuple[int, int]) -> int:
    return daphne[0]


@pytest.fixture(scope="module")
def daphne(shared_redis_url: str) -> Iterator[tuple[int, int]]:
    """Port and process id."""
    port = _free_port()
    environment = {**os.environ, "SOUVERAINE_TEST_REDIS_URL": shared_redis_url}
    environment["ASGI_THREADS"] = "4"
    process = subprocess.Popen(
        [*DAPHNE, "-p", str(port), "tests.events.site_asgi:application"],
        cwd=ROOT,
        env=environment,
    )
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except ConnectionRefusedError:
            assert process.poll() is None, "daphne did not start"
            assert time.monotonic() < deadline, "daphne does not listen"
            time.sleep(0.05)
    yield port, process.pid
    process.terminate()
    process.wait(20)


@pytest.fixture
async def client(daphne_port: int) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{daphne_port}", timeout=30, limits=limits, trust_env=False
    ) as opened:
        yield opened


async def state_of(client: httpx.AsyncClient) -> dict[str, Any]:
    state: dict[str, Any] = (await client.get("/state")).json()
    return state


async def test_hundred_streams_at_once_need_no_threads(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(
        *(client.get("/ticks?n=10&gap=0.5") for _ in range(STREAMS)),
        _most_threads(client),
    )
    expected = b"".join(sse.data_frame(b"%d" % number) for number in range(10)) + sse.DONE
    assert {(answer.status_code, answer.content) for answer in answers[:-1]} == {(200, expected)}
    assert answers[-1] < 20


async def _most_threads(client: httpx.AsyncClient) -> int:
    """Return the threads at a moment when most of the streams are open."""
    async with asyncio.timeout(30):
        while (state := await state_of(client))["open"] <= STREAMS / 2:
            await asyncio.sleep(0.05)
    return int(state["threads"])


async def test_disconnects_are_seen_and_cancel_the_pumps(client: httpx.AsyncClient) -> None:
    before = await state_of(client)
    opened = [
        await client.send(client.build_request("GET", "/ticks?n=9&gap=60"), stream=True)
        for _ in range(STREAMS)
    ]
    assert (await state_of(client))["open"] == STREAMS
    await asyncio.gather(*(response.aclose() for response in opened))
    left_at = time.monotonic()
    while (state := await state_of(client))["open"]:
        assert time.monotonic() - left_at < 0.5, state
    assert state["cancelled"] - before.get("cancelled", 0) == STREAMS


async def test_refusal_keeps_its_status(client: httpx.AsyncClient) -> None:
    answer = await client.get("/ticks?deny=1")
    assert answer.status_code == 403
    assert answer.json()["detail"]
    assert answer.headers["x-from-middleware"] == "yes"


async def test_headers_are_merged(client: httpx.AsyncClient) -> None:
    answer = await client.get("/ticks")
    assert answer.headers.get_list("content-type") == ["text/event-stream; charset=utf-8"]
    assert answer.headers["x-from-middleware"] == "yes"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert "x-souveraine-handoff" not in answer.headers


def test_connection_serves_on_after_streams(daphne_port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", daphne_port, timeout=10)
    connection.connect()
    first_socket = connection.sock
    for method, path, status in [
        ("GET", "/ticks?n=2", 200),
        ("HEAD", "/ticks?n=9&gap=60", 200),
        ("POST", "/answers", 201),
        ("GET", "/fails?when=before", 500),
        ("GET", "/fails?when=after", 200),
        ("POST", "/echo", 200),
        ("GET", "/ticks?n=1", 200),
    ]:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        assert (answer.status, connection.sock) == (status, first_socket), path
    assert body == sse.data_frame(b"0") + sse.DONE
    connection.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_oversized_body_gets_413(daphne_port: int, chunked: bool) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", daphne_port, timeout=10)
    pieces = [b"x" * 10_000] * 11
    body = iter(pieces) if chunked else b"".join(pieces)
    connection.request("POST", "/echo", body, encode_chunked=chunked)
    answer = connection.getresponse()
    assert answer.status == 413
    assert "100000" in json.loads(answer.read())["detail"]
    connection.request("POST", "/echo", b"small")
    assert json.loads(connection.getresponse().read())["length"] == 5
    connection.close()


async def test_several_clients_follow_one_run(client: httpx.AsyncClient, run_id: Any) -> None:
    followers = [asyncio.create_task(client.get(f"/runs/{run_id}")) for _ in range(5)]
    for number in range(50):
        await log.append_async(run_id, 1, [("frame", b"%d" % number)])
    await log.append_async(run_id, 1, [(log.END, b"{}")])
    expected = b"".join(sse.data_frame(b"%d" % number) for number in range(50))
    for follower in followers:
        assert (await follower).content == expected + sse.data_frame(b"{}")


@pytest.mark.parametrize("kind", ["stream", "socket"])
async def test_a_client_that_does_not_read_makes_the_sender_wait_and_loses_nothing(
    client: httpx.AsyncClient, daphne_port: int, kind: str
) -> None:
    before = (await state_of(client)).get("flooded", 0)
    total = len(FLOOD_PIECE) * FLOOD_PIECES
    with socket.create_connection(("127.0.0.1", daphne_port), 20) as reader:
        lines = [f"GET /floods HTTP/1.1\r\nHost: localhost:{daphne_port}"]
        if kind == "socket":
            lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
            lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        reader.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        sent, at_rest = -1, False
        while not at_rest:
            await asyncio.sleep(0.3)
            now = (await state_of(client)).get("flooded", 0) - before
            sent, at_rest = now, now == sent and now > 0
        # The kernel's buffers hold a few MiB of it; the server itself no more than its high-water mark.
        assert sent * len(FLOOD_PIECE) < total / 4
        received = 0
        while received < total:
            piece = await asyncio.to_thread(reader.recv, 1 << 20)
            assert piece, received
            received += piece.count(b"|")
    assert received == total


FRAMES, FRAME_BYTES = 4_000, 4_000


def memory_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def read_to_end(slow: socket.socket) -> bytes:
    parts = [b""]
    slow.settimeout(10)
    while b"data: {}" not in parts[-1]:
        parts.append(slow.recv(1 << 20))
    slow.close()
    return b"".join(parts)


async def test_clients_that_do_not_read_cost_little_and_lose_nothing(
    daphne: tuple[int, int], client: httpx.AsyncClient, run_id: Any
) -> None:
    port, pid = daphne
    followers = (await state_of(client)).get("followers", 0)
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    for opened in slow:
        opened.sendall(f"GET /runs/{run_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    fast = asyncio.create_task(client.get(f"/runs/{run_id}"))
    await log.append_async(run_id, 1, [("frame", b"0")])
    while (await state_of(client))["followers"] < followers + 5:
        await asyncio.sleep(0.01)
    before = memory_bytes(pid)
    for first in range(0, FRAMES, 100):
        entries = [("frame", b"%0*d" % (FRAME_BYTES, first + n)) for n in range(100)]
        await log.append_async(run_id, 1, entries)
    await log.append_async(run_id, 1, [(log.END, b"{}")])
    numbers = [int(frame.data) for frame in sse.decode((await fast).content)[:-1]]
    assert numbers == [0, *range(FRAMES)], "others are not held up"
    # Unbounded, each of the four would hold 15 MB.
    assert memory_bytes(pid) - before < 25_000_000
    for opened in slow:
        text = await asyncio.to_thread(read_to_end, opened)
        assert text.count(b"data: ") == FRAMES + 2
