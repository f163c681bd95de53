"""Calls an ASGI application in tests, as a server would: chunks as they come, disconnects.

Unlike Django's and DRF's test clients it sees handed-over streams (`souveraine.api.handoff`).
"""

from __future__ import annotations

import asyncio
import json as json_module
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import unquote

Application: TypeAlias = Callable[..., Awaitable[Any]]

CLIENT = ("127.0.0.1", 50_000)
DEADLINE_SECONDS = 20.0


class AsgiResponse:
    """An answer that may still be coming in; `headers` has lower-case names, repeats joined."""

    def __init__(
        self, task: asyncio.Task[Any], incoming: asyncio.Queue[Any], messages: asyncio.Queue[Any]
    ) -> None:
        self._task, self._incoming, self._messages = task, incoming, messages
        self.status = 0
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.headers: dict[str, str] = {}
        self.content = b""  # what was read so far
        self.is_complete = False

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the pieces of the body as the application sends them."""
        while not self.is_complete:
            message = await self._next_message()
            self.is_complete = not message.get("more_body", False)
            piece: bytes = message.get("body", b"")
            self.content += piece
            if piece:
                yield piece

    async def read(self) -> bytes:
        """Read the body to its end and return all of it."""
        async for _ in self.chunks():
            pass
        return self.content

    def json(self) -> Any:
        """Decode what was read as JSON."""
        return json_module.loads(self.content)

    async def disconnect(self, *, wait: bool = True) -> None:
        """Leave as a client does, and by default wait until the application has ended."""
        await self._incoming.put({"type": "http.disconnect"})
        if wait:
            await asyncio.wait_for(asyncio.shield(self._task), DEADLINE_SECONDS)

    async def _read_start(self) -> None:
        message = await self._next_message()
        self.status, self.raw_headers = message["status"], list(message.get("headers", []))
        for raw_name, raw_text in self.raw_headers:
            name, text = raw_name.decode().lower(), raw_text.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {text}" if name in self.headers else text

    async def _next_message(self) -> Any:
        getter = asyncio.ensure_future(self._messages.get())
        try:
            await asyncio.wait(
                {getter, self._task}, timeout=DEADLINE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            getter.cancel()
            raise
        if not getter.done() and self._messages.empty():
            getter.cancel()
            if self._task.done():
                self._task.result()
                raise AssertionError("the application ended without completing its answer")
            raise AssertionError(f"the application sent nothing for {DEADLINE_SECONDS:g} s")
        return await getter


@asynccontextmanager
async def open_request(
    application: Application,
    method: str,
    path: str,
    *,
    body: bytes | Sequence[bytes] = b"",
    json: Any = None,
    headers: Mapping[str, str] | None = None,
    client: tuple[str, int] = CLIENT,
) -> AsyncIterator[AsgiResponse]:
    """Send a request and yield once the answer has started; leaving the block disconnects.

    `body` in several pieces is sent without Content-Length. `path` may carry a query. Exceptions of
    the application are raised here.
    """
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    pieces = [body] if isinstance(body, bytes) else list(body)
    fields = {"host": "localhost"}
    if json is not None:
        pieces = [json_module.dumps(json).encode()]
        fields["content-type"] = "application/json"
    if len(pieces) == 1:
        fields["content-length"] = str(len(pieces[0]))
    for number, piece in enumerate(pieces, 1):
        incoming.put_nowait(
            {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        )
    fields |= {name.lower(): text for name, text in (headers or {}).items()}
    messages: asyncio.Queue[Any] = asyncio.Queue()
    scope = _scope(method, path, fields, client)
    task = asyncio.ensure_future(application(scope, incoming.get, messages.put))
    response = AsgiResponse(task, incoming, messages)
    try:
        await response._read_start()
        yield response
        await response.disconnect()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def call(application: Application, method: str, path: str, **options: Any) -> AsgiResponse:
    """Send a request and return the complete answer; options as in `open_request`."""
    async with open_request(application, method, path, **options) as response:
        await response.read()
    return response


async def first_piece(
    application: Application, method: str, path: str, **options: Any
) -> AsgiResponse:
    """Send a request, read one piece of its answer and leave; options as in `open_request`."""
    async with (
        open_request(application, method, path, **options) as response,
        aclosing(response.chunks()) as chunks,
    ):
        await anext(chunks, b"")
    return response


def _scope(
    method: str, path: str, fields: Mapping[str, str], client: tuple[str, int]
) -> dict[str, Any]:
    plain, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": unquote(plain),
        "raw_path": plain.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(name.encode(), text.encode("latin-1")) for name, text in fields.items()],
        "client": list(client),
        "server": ["127.0.0.1", 8283],
    }
