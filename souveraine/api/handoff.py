"""Plain views, streaming answers: a view hands its stream over to a task outside of Django.

A view authenticates, validates and returns `hand_over(request, spec)`. The ASGI wrapper `handoff`
recognises that empty answer, keeps the headers that middleware gave it, and lets a Channels
consumer run `spec.run` as a task. An open stream so holds no thread, and a client that leaves is
noticed at once. Every other answer passes untouched.

A spec must not hold anything that needs closing before `run` starts: when the client has left
meanwhile, `run` is never called. `limit_body` refuses oversized requests before Django keeps them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

from channels.consumer import AsyncConsumer, get_handler_name
from channels.exceptions import StopConsumer
from django.http import HttpRequest, HttpResponse
from rest_framework.request import Request

from souveraine.api.exceptions import body_of, handle, too_large

log = logging.getLogger(__name__)

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

SCOPE_KEY = "souveraine.handoff"
MARKER = "X-Souveraine-Handoff"  # ties the outgoing answer to its spec; never leaves the server
REPLACED = {b"content-type", b"content-length", MARKER.lower().encode()}
ADDED_UP = {b"vary", b"set-cookie"}  # both Django's and the stream's count
CLEAN_UP_SECONDS = 5.0  # for what a pump does after its last byte; below daphne's 10 s


class StreamSpec(Protocol):
    """What a view hands over: data, and a coroutine that answers the request with them."""

    async def run(self, send: StreamSender) -> None:
        """Answer through `send`; cancelled when the client leaves."""


class StreamSender:
    """Sends one response; the pump's only way to the client."""

    def __init__(self, send: Send, base_headers: RawHeaders, *, is_head: bool = False) -> None:
        self._send, self._base, self._is_head = send, base_headers, is_head
        self.is_started = False
        self.ended = asyncio.Event()

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers; Django's own are added, but these win.

        Raises RuntimeError if started. For HEAD this is the whole answer: the pump is cancelled
        after it.
        """
        if self.is_started:
            raise RuntimeError("the response was already started")
        self.is_started = True
        own = [
            (name.lower().encode("ascii"), text.encode("latin-1")) for name, text in headers.items()
        ]
        names = {name for name, _ in own} - ADDED_UP
        kept = [(name, text) for name, text in self._base if name.lower() not in names]
        await self._send({"type": "http.response.start", "status": status, "headers": kept + own})
        if self._is_head:
            await self._finish(b"")

    async def body(self, data: bytes, more: bool = True) -> None:
        """Send a piece of the body. Raises RuntimeError before `start` and after the end."""
        if self._is_head and self.ended.is_set():
            return
        if not self.is_started or self.ended.is_set():
            raise RuntimeError("a body needs a started response that has not ended")
        if more:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        else:
            await self._finish(data)

    async def end(self) -> None:
        """End the body; safe to call twice."""
        if not self.ended.is_set():
            await self.body(b"", more=False)

    async def json(
        self, status: int, payload: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole compact JSON answer."""
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
        length = {"Content-Type": "application/json", "Content-Length": str(len(text))}
        await self.start(status, {**(headers or {}), **length})
        await self.body(text, more=False)

    async def _finish(self, data: bytes) -> None:
        self.ended.set()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})


class _Exchange:
    """One request on its way through Django: specs offered by views, the answer withheld."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.offered: dict[str, StreamSpec] = {}
        self.spec: StreamSpec | None = None
        self.headers: RawHeaders = []
        self.is_gone = False

    async def receive(self) -> Message:
        message = await self._receive()
        self.is_gone = self.is_gone or message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._take(list(message.get("headers", [])))
        if self.spec is None:
            await self._send(message)

    def _take(self, headers: RawHeaders) -> None:
        marker = MARKER.lower().encode()
        tokens = [text.decode() for name, text in headers if name.lower() == marker]
        # A middleware may have put another answer in its place (an error, say): that one goes out.
        self.spec = self.offered.get(tokens[0]) if tokens else None
        self.headers = [(name, text) for name, text in headers if name.lower() not in REPLACED]


def hand_over(request: HttpRequest | Request, spec: StreamSpec) -> HttpResponse:
    """Return the answer by which a view hands the response over to `spec`.

    Raises RuntimeError outside of the ASGI application (Django's and DRF's test clients, WSGI):
    there is no event loop that could go on after the view. Tests call `souveraine.testing.asgi`
    instead.
    """
    exchange = getattr(request, "scope", {}).get(SCOPE_KEY)
    if exchange is None:
        raise RuntimeError(
            "This answer streams and needs the ASGI application (souveraine.asgi). In a test, "
            "call it with souveraine.testing.asgi.call instead of a Django or DRF test client."
        )
    token = secrets.token_hex(8)
    exchange.offered[token] = spec
    response = HttpResponse()
    response[MARKER] = token
    return response


class StreamConsumer(AsyncConsumer):  # type: ignore[misc]  # channels has no types
    """Runs one handed-over stream as a task, and cancels it when the client leaves."""

    channel_layer_alias = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        exchange: _Exchange = scope[SCOPE_KEY]
        self._path = scope["path"]
        self._is_head = scope["method"] == "HEAD"
        self._sender = StreamSender(send, exchange.headers, is_head=self._is_head)
        assert exchange.spec is not None
        self._pump = asyncio.create_task(self._run(exchange.spec), name=f"stream {self._path}")
        try:
            await super().__call__(scope, self._until_done(receive), send)
        finally:
            await self._stop()

    async def dispatch(self, message: Message) -> None:
        """Call the handler; Channels' own would first visit the thread of database connections.

        There a slow query would delay noticing a disconnect.
        """
        await getattr(self, get_handler_name(message))(message)

    async def http_request(self, message: Message) -> None:
        """Ignore what is left of the body; the view has read all that it wanted."""

    async def http_disconnect(self, message: Message) -> None:
        """Stop: the client has left, or the answer is complete."""
        raise StopConsumer

    def _until_done(self, receive: Receive) -> Receive:
        async def receive_or_done() -> Message:
            waits = [asyncio.ensure_future(receive()), asyncio.ensure_future(self._done())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                return waits[0].result() if waits[0].done() else {"type": "http.disconnect"}
            finally:
                for wait in waits:
                    wait.cancel()

        return receive_or_done

    async def _done(self) -> Message:
        await asyncio.wait([self._pump])
        return {"type": "http.disconnect"}

    async def _stop(self) -> None:
        # daphne reports a disconnect also after a complete answer; the pump may then finish its
        # work.
        if self._sender.ended.is_set() and not self._is_head:
            await asyncio.wait([self._pump], timeout=CLEAN_UP_SECONDS)
        while not self._pump.done():
            # Repeated, since a library may swallow a cancel (asyncio.wait_for in Python 3.11 does).
            self._pump.cancel()
            await asyncio.wait([self._pump], timeout=1)

    async def _run(self, spec: StreamSpec) -> None:
        try:
            await spec.run(self._sender)
            if not self._sender.is_started:
                raise RuntimeError(f"{type(spec).__name__}.run ended without an answer")
        except Exception as error:  # the edge "stream pump" of style.md §6
            await self._answer_failure(error)
        else:
            await self._sender.end()

    async def _answer_failure(self, error: Exception) -> None:
        if self._sender.is_started:
            log.error("event=stream_failed path=%s", self._path, exc_info=error)
            await self._sender.end()
            return
        answer = handle(error, {"request": SimpleNamespace(path=self._path)})
        headers = {name: text for name, text in answer.items() if name.lower() != "content-type"}
        await self._sender.json(answer.status_code, answer.data, headers)


def handoff(application: Application) -> Application:
    """Wrap Django's ASGI application so that its views can use `hand_over`."""
    consumer = StreamConsumer.as_asgi()

    async def http(scope: Any, receive: Receive, send: Send) -> None:
        exchange = _Exchange(receive, send)
        scope = {**scope, SCOPE_KEY: exchange}
        await application(scope, exchange.receive, exchange.send)
        if exchange.spec is not None and not exchange.is_gone:
            await consumer(scope, receive, send)

    return http


PIECES_AT_ONCE = 64  # of a body, 8 KiB each under daphne


@dataclass(frozen=True)
class BodyLimit:
    """The largest body of a route, and the setting that says so."""

    limit_bytes: int
    setting: str = "SOUVERAINE_MAX_REQUEST_BYTES"


def limit_body(
    application: Application, limit_bytes: int, routes: Mapping[str, BodyLimit] | None = None
) -> Application:
    """Wrap an HTTP application: larger bodies get 413, by Content-Length or while they come in.

    `routes` are paths (without a slash at the end) that have a limit of their own: they take files.
    """
    everywhere, own = BodyLimit(limit_bytes), dict(routes or {})

    async def limited(scope: Any, receive: Receive, send: Send) -> None:
        limit = own.get(scope["path"].rstrip("/"), everywhere)
        limit_bytes = limit.limit_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit_bytes:
            await _refuse(send, limit)
            return
        received, pieces, is_over, is_answered = 0, 0, False, False

        async def counted_receive() -> Message:
            nonlocal received, is_over, pieces
            message = await receive()
            pieces += 1
            if pieces % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)  # a large body is there at once; others have their turn
            received += len(message.get("body", b""))
            if received > limit_bytes:
                is_over = True
                return {
                    "type": "http.disconnect"
                }  # lets Django drop what it has, without an answer
            return message

        async def noted_send(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        await application(scope, counted_receive, noted_send)
        if is_over and not is_answered:
            await _refuse(send, limit)

    return limited


async def _refuse(send: Send, limit: BodyLimit) -> None:
    error = too_large(limit.limit_bytes, limit.setting)
    await StreamSender(send, []).json(error.http_status, body_of(error))
