"""Viewers of ambient streams in tests: they collect frames beside what the test does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from channels.testing import WebsocketCommunicator

from souveraine.testing.asgi import open_request
from tests.conftest import Api, wait_for


class Viewer:
    """What one viewer has got so far; `stop` ends it."""

    def __init__(self, api: Api, path: str, headers: dict[str, str]) -> None:
        self._api = api
        self.status = 0
        self.bytes = b""
        self.is_over = False
        self._future = asyncio.run_coroutine_threadsafe(
            self._watch(api._application, path, headers), api._loop
        )

    async def _watch(self, application: Any, path: str, headers: dict[str, str]) -> None:
        async with open_request(application, "GET", path, headers=headers) as response:
            self.status, self.headers = response.status, response.headers
            async for piece in response.chunks():
                self.bytes += piece
        self.is_over = True

    @property
    def all_frames(self) -> list[dict[str, Any]]:
        """The frames in order, pings too."""
        blocks = self.bytes.decode().split("\n\n")[:-1]
        assert all(block.startswith("data: ") for block in blocks)
        return [json.loads(block.removeprefix("data: ")) for block in blocks]

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The frames in order without pings."""
        return [f for f in self.all_frames if f["message_type"] != "ping"]

    def types(self) -> list[str]:
        return [frame["message_type"] for frame in self.frames]

    @property
    def cursor(self) -> int:
        return int(self.all_frames[-1]["cursor"])

    def text(self) -> str:
        return "".join(
            f["content"] for f in self.frames if f["message_type"] == "assistant_message"
        )

    def wait_until(self, message_type: str, count: int = 1) -> Viewer:
        """Wait until `count` such frames have come."""
        wait_for(lambda: self._failed() or self.types().count(message_type) >= count)
        return self

    def wait_until_open(self) -> Viewer:
        wait_for(lambda: self._failed() or self.bytes)
        return self

    def _failed(self) -> bool:
        if self._future.done():
            self._future.result()
        return False

    def stop(self) -> None:
        self._future.cancel()
        wait_for(self._future.done)


class SocketViewer(Viewer):
    """A viewer on a WebSocket; `code` is the one with which the server closed it."""

    code: int | None = None

    async def _watch(self, application: Any, path: str, headers: dict[str, str]) -> None:
        fields = {"host": "localhost"} | {k.lower(): v for k, v in headers.items()}
        raw = [(name.encode(), text.encode()) for name, text in fields.items()]
        self._socket = WebsocketCommunicator(application, path, raw)
        self._socket.scope["client"] = ["127.0.0.1", 50_000]
        await self._socket.send_input({"type": "websocket.connect"})
        while (message := await self._socket.output_queue.get())["type"] != "websocket.close":
            self.bytes += b"data: " + message.get("text", "").encode() + b"\n\n"
        self.code, self.is_over = message["code"], True

    @property
    def all_frames(self) -> list[dict[str, Any]]:
        texts = self.bytes.decode().split("\n\n")[1:-1]  # the first one is the accepted handshake
        return [json.loads(text.removeprefix("data: ")) for text in texts]

    def say(self, text: str) -> None:
        self._api.run(self._socket.send_input({"type": "websocket.receive", "text": text}))

    def stop(self) -> None:
        self._api.run(self._socket.send_input({"type": "websocket.disconnect", "code": 1001}))
        self._api.run(self._socket.wait(20))
        super().stop()

    def wait_until_over(self) -> SocketViewer:
        wait_for(lambda: self._failed() or self.is_over)
        return self


@contextmanager
def connected(api: Api, path: str, headers: dict[str, str] | None = None) -> Iterator[SocketViewer]:
    """Open `/ws/<path>`; yields when the first frame has come."""
    viewer = SocketViewer(api, f"/ws/{path}", headers or {})
    try:
        wait_for(lambda: viewer._failed() or viewer.all_frames or viewer.is_over)
        yield viewer
    finally:
        viewer.stop()


@contextmanager
def watching(
    api: Api, conversation_id: str, query: str = "", headers: dict[str, str] | None = None
) -> Iterator[Viewer]:
    """Watch a conversation; yields when the stream is open."""
    path = f"/v1/conversations/{conversation_id}/events{query}"
    viewer = Viewer(api, path, {**api.default_headers, **(headers or {})})
    try:
        yield viewer.wait_until_open()
    finally:
        viewer.stop()
