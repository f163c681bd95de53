"""Makes senders wait for slow readers under daphne, which takes any amount into its memory at once.

Other servers do this themselves. Wrapped around the whole application: without it a client that does not
read would collect in memory all that a stream sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

HIGH_WATER_BYTES = 256 * 1024  # per connection, beyond what the kernel holds
FIRST_WAIT_SECONDS = 0.001  # a client of this machine has read it by then
LAST_WAIT_SECONDS = 0.25
PAYLOADS = frozenset({"http.response.body", "websocket.send"})


def drained(application: Any) -> Any:
    """Wrap an ASGI application: a send returns when its connection holds less than HIGH_WATER_BYTES."""

    async def waiting(scope: Any, receive: Any, send: Send) -> None:
        transport = _transport_of(send)
        if transport is None:
            await application(scope, receive, send)
            return

        async def send_and_wait(message: Message) -> None:
            await send(message)
            if message["type"] in PAYLOADS:
                await _wait_until_low(transport)

        await application(scope, receive, send_and_wait)

    return waiting


def _transport_of(send: Any) -> Any:
    """Return Twisted's transport behind daphne's `send`, or None under another server."""
    if not (isinstance(send, partial) and send.args):
        return None
    transport = getattr(send.args[0], "transport", None)
    return transport if hasattr(transport, "_tempDataLen") else None


def _buffered_bytes(transport: Any) -> int:
    return int(len(transport.dataBuffer) - transport.offset + transport._tempDataLen)


async def _wait_until_low(transport: Any) -> None:
    delay = FIRST_WAIT_SECONDS
    while transport.connected and _buffered_bytes(transport) > HIGH_WATER_BYTES:
        await asyncio.sleep(delay)
        delay = min(delay * 2, LAST_WAIT_SECONDS)
