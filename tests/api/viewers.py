"""Viewers of ambient streams in tests: they collect frames beside what the test does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from souveraine.testing.asgi import open_request
from tests.conftest import Api, wait_for


class Viewer:
    """What one viewer has got so far; `stop` ends it."""

    def __init__(self, api: Api, path: str, headers: dict[str, str]) -> None:
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
