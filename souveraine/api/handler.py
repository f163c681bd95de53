"""Django's views on a fixed pool of threads, each of which keeps its database connection.

Django's own ASGI handler makes a thread for each request, and with it a database connection (on SQLite
1.6 ms and a reading of the schema), and visits the thread once per synchronous middleware. All views and
middleware here are synchronous, so a request is one visit. Streams do not wait in these threads: see
`souveraine.api.handoff`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import django
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import FileResponse
from django.urls import set_script_prefix

REQUESTS_AT_ONCE = 12  # more gain nothing in one process; an open stream takes none of them

_executor = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="request")


class PooledHandler(ASGIHandler):
    """Answers each request in one thread of the pool."""

    def __init__(self) -> None:
        self.load_middleware(is_async=False)

    async def __call__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Read the body, answer in the pool, send. A client that leaves meanwhile stops nothing."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        loop = asyncio.get_running_loop()
        response = await loop.run_in_executor(_executor, self._answer, scope, body)
        try:
            await self.send_response(response, send)
        finally:
            body.close()
            if response.streaming:  # else it was closed where it was made
                await loop.run_in_executor(_executor, response.close)

    def _answer(self, scope: Any, body: IO[bytes]) -> Any:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response: Any = refusal if request is None else self.get_response(request)
        response._handler_class = self.__class__
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if not response.streaming:
            response.close()  # the content stays; connections that failed are closed in their thread
        return response


def get_application() -> PooledHandler:
    """Set Django up and return its ASGI application."""
    django.setup(set_prefix=False)
    return PooledHandler()
