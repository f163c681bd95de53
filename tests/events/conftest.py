"""The event log's tests use the session's Redis, or one of their own that may be stopped."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from souveraine.events.connection import close_async_clients, close_sync_clients
from souveraine.events.hub import close_hub
from tests.events.redis_server import RedisServer


@pytest.fixture(autouse=True)
async def event_log(shared_redis_url: str, settings: Any) -> AsyncIterator[str]:
    """Point the settings to the shared Redis, and close this loop's connections afterwards."""
    settings.REDIS_URL = shared_redis_url
    yield shared_redis_url
    await close_hub()
    await close_async_clients()
    close_sync_clients()


@pytest.fixture
def own_redis(settings: Any, event_log: str) -> Iterator[RedisServer]:
    """A Redis that the test may stop and restart; the settings point to it."""
    with tempfile.TemporaryDirectory(prefix="sv-", dir="/tmp") as folder:
        server = RedisServer(Path(folder))
        server.start()
        settings.REDIS_URL = server.url
        yield server
        server.stop()


@pytest.fixture
def run_id() -> uuid.UUID:
    return uuid.uuid4()
