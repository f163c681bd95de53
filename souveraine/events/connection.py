"""The one place that opens connections to Redis (`settings.REDIS_URL`: redis://, rediss://,
unix://).

`sync_client` and `async_client` are shared and for short commands; readers that block (the hub, the
signal listener) own a client from `new_blocking_client`. RESP2 everywhere: replies then have the
same shape on Redis 6.2 and later.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from souveraine.errors import Unavailable
from souveraine.lib.program import program_name

CONNECT_TIMEOUT_SECONDS = 3.0
COMMAND_TIMEOUT_SECONDS = 5.0  # an answer takes microseconds; longer means Redis is stuck or gone
HEALTH_CHECK_SECONDS = 15  # a PING before the first command on a connection idle for this long
RETRIES = 2  # bridges a closed idle connection; longer outages are the caller's to wait out
POOL_SIZE = 32  # connections per process or loop; further callers wait instead of failing
POOL_WAIT_SECONDS = 10.0

_sync_clients: dict[str, redis.Redis] = {}
_sync_lock = threading.Lock()
_async_clients: dict[asyncio.AbstractEventLoop, dict[str, redis.asyncio.Redis]] = {}
_async_lock = threading.Lock()  # loops of several threads share the dictionary


class _StopsWhenCancelled:
    """Mixed into redis-py's connections: a cancel during a send is passed on.

    redis-py sends under `asyncio.wait_for`, which in Python 3.11 forgets a cancel that comes when the
    send has just ended. Without this a disconnect or a timeout would now and then be ignored, and
    the task wait for ever.
    """

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        await super().send_packed_command(command, check_health)  # type: ignore[misc]  # a mixin
        if task and task.cancelling() > cancels:
            await self.disconnect(nowait=True)  # type: ignore[attr-defined]  # a reply is open
            raise asyncio.CancelledError


class _SafePool(redis.asyncio.BlockingConnectionPool):
    """A pool whose callers may be cancelled at any point.

    A caller cancelled while it gives its connection back would keep it from all others for ever.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        plain = self.connection_class
        self.connection_class = type(plain.__name__, (_StopsWhenCancelled, plain), {})

    async def release(self, connection: Any) -> None:
        await asyncio.shield(super().release(connection))


def configured_url() -> str:
    """Return `settings.REDIS_URL`. Raises Unavailable when it is empty."""
    url = str(settings.REDIS_URL or "")
    if not url:
        raise Unavailable(
            f"No Redis is configured for this process. Start it with `{program_name()} serve`, "
            "or set REDIS_URL."
        )
    return url


def _common() -> dict[str, Any]:
    return {
        "protocol": 2,
        "socket_connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "health_check_interval": HEALTH_CHECK_SECONDS,
    }


def _backoff() -> ExponentialWithJitterBackoff:
    return ExponentialWithJitterBackoff(base=0.02, cap=0.5)


def sync_client(url: str | None = None) -> redis.Redis:
    """Return the process-wide client for short commands; safe to use from any thread."""
    target = url or configured_url()
    with _sync_lock:
        client = _sync_clients.get(target)
        if client is None:
            pool = redis.BlockingConnectionPool.from_url(
                target,
                max_connections=POOL_SIZE,
                timeout=POOL_WAIT_SECONDS,
                socket_timeout=COMMAND_TIMEOUT_SECONDS,
                retry=Retry(_backoff(), RETRIES),
                **_common(),
            )
            client = _sync_clients[target] = redis.Redis.from_pool(pool)
        return client


def async_client(url: str | None = None) -> redis.asyncio.Redis:
    """Return the client of the running event loop for short commands.

    Asyncio connections belong to the loop that opened them, hence one client for each.
    """
    target = url or configured_url()
    with _async_lock:
        clients = _clients_of(asyncio.get_running_loop())
    client = clients.get(target)
    if client is None:
        pool = _SafePool.from_url(
            target,
            max_connections=POOL_SIZE,
            timeout=POOL_WAIT_SECONDS,
            socket_timeout=COMMAND_TIMEOUT_SECONDS,
            retry=AsyncRetry(_backoff(), RETRIES),
            **_common(),
        )
        client = clients[target] = redis.asyncio.Redis.from_pool(pool)
    return client


def _clients_of(loop: asyncio.AbstractEventLoop) -> dict[str, redis.asyncio.Redis]:
    if loop not in _async_clients:
        for ended in [other for other in _async_clients if other.is_closed()]:
            del _async_clients[ended]
        _async_clients[loop] = {}
    return _async_clients[loop]


def new_blocking_client(url: str | None = None) -> redis.asyncio.Redis:
    """Open a client for one reader that blocks; the caller closes it with `aclose`.

    It has no socket timeout (redis-py's default of 5 s would end a blocking XREAD) and does not
    retry: its owner supervises it and knows from where to read again.
    """
    client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
        url or configured_url(), socket_timeout=None, retry=AsyncRetry(_backoff(), 0), **_common()
    )
    return client


async def close_async_clients() -> None:
    """Close the shared clients of the running event loop; safe to call twice."""
    with _async_lock:
        clients = _async_clients.pop(asyncio.get_running_loop(), {})
    for client in clients.values():
        await client.aclose()


def close_sync_clients() -> None:
    """Close the shared clients of this process; safe to call twice."""
    with _sync_lock:
        clients = list(_sync_clients.values())
        _sync_clients.clear()
    for client in clients:
        client.close()
