"""A scripted HTTP server on loopback: plays answers by path, notes requests and disconnects."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class Answer:
    """One answer; `parts` go out as chunks. After them: a good end, `cut` or `hang`."""

    parts: list[bytes]
    status: int = 200
    content_type: str = "application/json"
    cut: bool = False
    hang: bool = False
    delay_seconds: float = 0.0
    pause_seconds: float = 0.0  # before each part
    headers: dict[str, str] = field(default_factory=dict)


Script = Answer | Callable[[Any], Answer]


def as_json(value: Any, status: int = 200, **more: Any) -> Answer:
    return Answer([json.dumps(value).encode()], status, **more)


def sse(*chunks: Any, done: bool = True, **more: Any) -> Answer:
    """An event stream of JSON chunks; bytes go out as they are."""
    parts = [
        c if isinstance(c, bytes) else b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks
    ]
    return Answer(
        [*parts, *([b"data: [DONE]\n\n"] if done else [])], content_type="text/event-stream", **more
    )


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "c1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def ndjson(*parts: Any, **more: Any) -> Answer:
    return Answer(
        [json.dumps(p).encode() + b"\n" for p in parts], content_type="application/x-ndjson", **more
    )


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class WireServer:
    """Answers of one path are played in order; the last one repeats. A callable gets the body."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.disconnected = threading.Event()
        self.disconnected_at = 0.0
        self.sent_hang = threading.Event()
        self._answers: dict[str, deque[Script]] = defaultdict(deque)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        # A client that leaves early is what some tests are about; no traceback for it.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, path: str, *answers: Script) -> Self:
        self._answers[path].extend(answers)
        return self

    def bodies(self, path: str) -> list[Any]:
        return [seen.body for seen in self.requests if seen.path == path]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _next(self, path: str, body: Any) -> Answer:
        queue = self._answers[path]
        if not queue:
            return as_json({"error": "no such path"}, 404)
        answer = queue.popleft() if len(queue) > 1 else queue[0]
        return answer(body) if callable(answer) else answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append(Seen(self.command, self.path, headers, body))
                outer._play(self, outer._next(self.path, body))

            do_POST = do_GET

        return Handler

    def _play(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        time.sleep(answer.delay_seconds)
        handler.send_response(answer.status)
        for name, value in {"Content-Type": answer.content_type, **answer.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in answer.parts:
            time.sleep(answer.pause_seconds)
            try:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            except ConnectionError:
                return  # the client had enough
        if answer.hang:
            self.sent_hang.set()
            self._watch(handler.connection)
            handler.close_connection = True
        elif answer.cut:
            handler.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            handler.close_connection = True
        else:
            handler.wfile.write(b"0\r\n\r\n")

    def _watch(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if select.select([connection], [], [], 0.05)[0]:
                try:
                    gone = not connection.recv(1)
                except ConnectionError:
                    gone = True
                if gone:
                    self.disconnected_at = time.monotonic()
                    self.disconnected.set()
                    return
