"""Several clients on one conversation of a real server: streams, WebSockets, slow readers."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.e2e.conftest import Serve
from tests.e2e.test_crash import Stream, make_conversation
from tests.e2e.test_python_sdk import script

ENDED = "souveraine_run_ended"
SMALL_BUFFER_BYTES = 32 * 1024
LONG_ANSWER_WORDS = 12_000  # about 6 MB of frames, more than the buffers of both kernels hold
GROWTH_MB = 60  # of the web process, while it holds nothing for those who do not read


def socket_url(server: Serve, path: str) -> str:
    return f"ws://127.0.0.1:{server.port}/ws/{path}"


def read_to_the_end(connection: ClientConnection) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["message_type"] != ENDED:
        frame = json.loads(connection.recv(timeout=60))
        if frame["message_type"] != "ping":
            frames.append(frame)
    return frames


def read_stream(server: Serve, path: str, found: list[dict[str, Any]]) -> None:
    with httpx.stream("GET", f"{server.url}/v1/{path}", timeout=60) as response:
        for line in response.iter_lines():
            frame = json.loads(line.removeprefix("data: ")) if line else {"message_type": "ping"}
            if frame["message_type"] != "ping":
                found.append(frame)
            if frame["message_type"] == ENDED:
                return


def memory_mb(pid: int) -> float:
    pages = int((Path("/proc") / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def answer_of(frames: list[dict[str, Any]]) -> str:
    return "".join(f["content"] for f in frames if f["message_type"] == "assistant_message")


def narrow_socket(server: Serve) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
    made.connect(("127.0.0.1", server.port))
    return made


def test_a_stream_and_a_socket_see_the_turn_of_a_third_client(server: Serve) -> None:
    agent, conversation = make_conversation(server)
    streamed: list[dict[str, Any]] = []
    path = f"conversations/{conversation}"
    reader = threading.Thread(target=read_stream, args=(server, f"{path}/events?after=0", streamed))
    reader.start()
    with (
        connect(socket_url(server, f"{path}/")) as watching,
        connect(socket_url(server, f"agents/{agent}/")) as of_agent,
    ):
        assert json.loads(of_agent.recv(timeout=30))["message_type"] == "ping"
        sender = Stream(server, conversation, script("hello", words=20, delay_ms=20))
        sender.start()
        sender.wait_for("assistant_message")
        with connect(socket_url(server, f"{path}/")) as late:
            frames = read_to_the_end(watching)
            assert read_to_the_end(late) == frames
            all_frames = read_to_the_end(of_agent)
            assert all_frames[:-1] == frames[:-1]
            assert all_frames[-1] == {**frames[-1], "after": all_frames[-1]["after"]}
    reader.join(60)
    sender.join(60)
    assert streamed == frames
    assert answer_of(frames) == " ".join(f"w{i}" for i in range(20))
    middle = frames[len(frames) // 2]["cursor"]
    with connect(socket_url(server, f"{path}/?after={middle}")) as again:
        assert read_to_the_end(again) == [f for f in frames if f["cursor"] > middle]


def test_slow_readers_neither_stop_the_turn_nor_grow_memory_and_lose_nothing(
    server: Serve,
) -> None:
    _, conversation = make_conversation(server)
    path = f"conversations/{conversation}"
    (web,) = server.pids("daphne")
    with (
        narrow_socket(server) as slow_stream,
        connect(
            socket_url(server, f"{path}/"), sock=narrow_socket(server), max_queue=1
        ) as slow_socket,
        connect(socket_url(server, f"{path}/?bandwidth=minimal")) as watching,
    ):
        request = f"GET /v1/{path}/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
        slow_stream.sendall(request.encode())
        json.loads(watching.recv(timeout=30))  # its first ping: all three are there
        before = memory_mb(web)
        sender = Stream(server, conversation, script("long", words=LONG_ANSWER_WORDS))
        sender.start()
        assert read_to_the_end(watching)[-1]["stop_reason"] == "end_turn"
        assert memory_mb(web) - before < GROWTH_MB
        expected = " ".join(f"w{i}" for i in range(LONG_ANSWER_WORDS))
        assert answer_of(read_to_the_end(slow_socket)) == expected
        received = b""
        slow_stream.settimeout(60)
        while ENDED.encode() not in received[-2_000_000:]:
            piece = slow_stream.recv(1 << 20)
            assert piece
            received += piece
    lines = [line[6:] for line in received.split(b"\n") if line.startswith(b"data: ")]
    assert answer_of([json.loads(line) for line in lines]) == expected
    sender.join(60)


def test_deleting_closes_sockets_and_foreign_pages_open_none(server: Serve) -> None:
    agent, conversation = make_conversation(server)
    url = socket_url(server, f"conversations/{conversation}/")
    with connect(url) as watching, connect(url, origin="https://evil.example") as foreign:  # type: ignore[arg-type]
        refusal = json.loads(foreign.recv(timeout=30))
        assert (refusal["message_type"], refusal["reason"]) == ("souveraine_closed", "forbidden")
        with pytest.raises(ConnectionClosed) as refused:
            foreign.recv(timeout=30)
        assert refused.value.rcvd is not None
        assert refused.value.rcvd.code == 4403
        assert json.loads(watching.recv(timeout=30))["message_type"] == "ping"
        httpx.delete(f"{server.url}/v1/agents/{agent}", timeout=30)
        assert json.loads(watching.recv(timeout=30))["reason"] == "deleted"
        with pytest.raises(ConnectionClosed) as closed:
            watching.recv(timeout=30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4410
