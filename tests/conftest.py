"""The server in one process for the fast tier: real ASGI application, real Redis, real worker loop.

Only the model provider is a double, and the broker is replaced by a thread that runs the turn.
"""

from __future__ import annotations

import asyncio
import json as json_module
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from souveraine.events.connection import close_async_clients, close_sync_clients
from souveraine.events.hub import close_hub
from souveraine.testing.asgi import call, first_piece
from tests.events.redis_server import RedisServer


@pytest.fixture(scope="session")
def shared_redis_url() -> Iterator[str]:
    """A Redis for the session: `SOUVERAINE_TEST_REDIS_URL`, else a bundled one on a private socket."""
    given = os.environ.get("SOUVERAINE_TEST_REDIS_URL")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="sv-", dir="/tmp") as folder:
        server = RedisServer(Path(folder))
        server.start()
        yield server.url
        server.stop()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database; at the end no pool's thread may keep PostgreSQL from dropping it."""
    from django.db import connection

    yield
    with django_db_blocker.unblock():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )


@dataclass
class Answer:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json_module.loads(self.body)

    def frames(self) -> list[Any]:
        """The `data:` lines in order: parsed frames, and "[DONE]"."""
        lines = [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: ")]
        return [line if line == "[DONE]" else json_module.loads(line) for line in lines]

    def types(self) -> list[str]:
        """The message types in order, pings left out."""
        kinds = [f if isinstance(f, str) else f["message_type"] for f in self.frames()]
        return [k for k in kinds if k != "ping"]


class Api:
    """Calls the ASGI application on a loop of its own; usable from several threads."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.default_headers: dict[str, str] = {}

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def request(
        self, method: str, path: str, json: Any = None, *, is_endless: bool = False, **options: Any
    ) -> Answer:
        """Call and read the answer: of an endless one that is no error only the first piece."""
        headers = {**self.default_headers, **options.pop("headers", {})}
        ask = first_piece if is_endless else call
        response = self.run(
            ask(self._application, method, path, json=json, headers=headers, **options)
        )
        body = response.content
        return Answer(
            response.status, {k.lower(): v for k, v in dict(response.headers).items()}, body
        )

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> Answer:
        return self.request("POST", path, json, **options)

    def patch(self, path: str, json: Any = None, **options: Any) -> Answer:
        return self.request("PATCH", path, json, **options)

    def delete(self, path: str, **options: Any) -> Answer:
        return self.request("DELETE", path, **options)

    def close(self) -> None:
        async def close_all() -> None:
            await close_hub()
            await close_async_clients()

        self.run(close_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def data_dir(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path


@pytest.fixture
def provider() -> Iterator[Any]:
    """The scripted model, as `fake/fake-model`."""
    from agents.providers.registry import override_providers
    from souveraine.testing.fake_provider import FakeProvider

    fake = FakeProvider()
    with override_providers({"fake": fake}):
        yield fake


@pytest.fixture
def redis_url(shared_redis_url: str, settings: Any) -> Iterator[str]:
    settings.REDIS_URL = shared_redis_url
    yield shared_redis_url
    close_sync_clients()


@pytest.fixture
def new_worker(
    transactional_db: None, data_dir: Path, redis_url: str
) -> Iterator[Callable[[], Any]]:
    """Makes workers; all are stopped at the end."""
    from conversations.turn.database import close_pool_connections
    from conversations.turn.worker import TurnWorker

    made: list[TurnWorker] = []

    def make() -> TurnWorker:
        worker = TurnWorker()
        worker.start()
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.stop()
    close_pool_connections()


def _closing_connections(function: Callable[[uuid.UUID], None], row_id: uuid.UUID) -> None:
    from django.db import connections

    try:
        function(row_id)
    finally:
        connections.close_all()


@pytest.fixture
def worker(new_worker: Callable[[], Any]) -> Iterator[Any]:
    """A worker that takes up each accepted run at once."""
    from agents.jobs.running import work
    from agents.services import jobs
    from conversations.services import dispatch

    current = new_worker()
    pool = ThreadPoolExecutor(32)

    def hand_over(run_id: uuid.UUID) -> None:
        pool.submit(current.execute, run_id)

    def hand_over_job(job_id: uuid.UUID) -> None:
        pool.submit(_closing_connections, work, job_id)

    with (
        dispatch.transport.override(hand_over),
        jobs.queue.transport.override(hand_over_job),
    ):
        yield current
    pool.shutdown(wait=True, cancel_futures=True)


@pytest.fixture
def idle_api(
    transactional_db: None, data_dir: Path, redis_url: str, provider: Any
) -> Iterator[Api]:
    """The API without a worker: accepted runs stay queued."""
    from agents.services import jobs
    from conversations.services import dispatch
    from souveraine.asgi import application

    client = Api(application)
    with (
        dispatch.transport.override(lambda run_id: None),
        jobs.queue.transport.override(lambda job_id: None),
    ):
        yield client
    client.close()


@pytest.fixture
def api(transactional_db: None, provider: Any, worker: Any) -> Iterator[Api]:
    """The whole server."""
    from souveraine.asgi import application

    client = Api(application)
    yield client
    client.close()


@pytest.fixture
def agent(api: Api) -> dict[str, Any]:
    """An agent with blocks `human` and `persona`."""
    return make_agent(api)


def make_agent(api: Api, **fields: Any) -> dict[str, Any]:
    body = {
        "name": "golden-agent",
        "model": "fake/fake-model",
        "memory_blocks": [
            {"label": "persona", "value": "I am."},
            {"label": "human", "value": "Name: Bob"},
        ],
        **fields,
    }
    answer = api.post("/v1/agents/", body)
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Poll until `condition` gives something true; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("the condition did not come true in time")
