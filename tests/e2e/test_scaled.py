"""The scaled form: one web process and two workers around a TCP Redis and PostgreSQL.

Needs `SOUVERAINE_TEST_POSTGRES` (a URL without database whose user may create one) and
`SOUVERAINE_TEST_TCP_REDIS`; the defaults are the usual local ports. Nothing that is there is
touched: the database is the tests' own, and in Redis only keys of new names appear.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import environ
import httpx
import psycopg
import pytest
import redis
from django.db import connections

from agents.services.shared_repository import SharedRepository
from memfs.authors import user_author
from souveraine.errors import Unavailable
from souveraine.lib.advisory_lock import AdvisoryLocks
from tests.e2e.conftest import ROOT, START_SECONDS, free_port
from tests.e2e.test_crash import Stream, listed, make_conversation, texts_after_retraction
from tests.e2e.test_python_sdk import script

pytestmark = pytest.mark.postgres
POSTGRES = os.environ.get("SOUVERAINE_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432")
REDIS = os.environ.get("SOUVERAINE_TEST_TCP_REDIS", "redis://127.0.0.1:6379/7")
LEASE_SECONDS = 5  # PostgreSQL has no busy time-out that a lease must outlast


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    """A new database, dropped at the end."""
    name = f"souveraine_test_{uuid.uuid4().hex[:12]}"
    try:
        admin = psycopg.connect(f"{POSTGRES}/postgres", autocommit=True, connect_timeout=3)
    except psycopg.OperationalError as exc:
        pytest.skip(f"no PostgreSQL at {POSTGRES}: {str(exc).strip()}")
    with admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield f"{POSTGRES}/{name}"
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def tcp_redis() -> str:
    try:
        with redis.Redis.from_url(REDIS, socket_connect_timeout=3) as client:
            client.ping()
    except redis.RedisError as exc:
        pytest.skip(f"no Redis at {REDIS}: {exc}")
    return REDIS


class Scaled:
    """A web process and its workers; `url` as of `Serve`."""

    def __init__(self, folder: Path, database_url: str, redis_url: str, double: str) -> None:
        self.folder, self.database_url, port = folder, database_url, free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
        self.environment = kept | {
            "SOUVERAINE_DATA_DIR": str(folder / "data"),
            "SOUVERAINE_PORT": str(port),
            "SOUVERAINE_LEASE_SECONDS": str(LEASE_SECONDS),
            "SHUTDOWN_TIMEOUT": "20",
            "OPENAI_BASE_URL": double,
            "OLLAMA_BASE_URL": "http://127.0.0.1:9",
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
        }

    def start(self, command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{command}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", command],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def wait_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if httpx.get(f"{self.url}/v1/health/").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, (self.folder / "web.log").read_text()
            time.sleep(0.1)

    def query(self, text: str) -> Any:
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(text).fetchall()

    def owner(self) -> subprocess.Popen[bytes]:
        """The worker process that runs the only running turn."""
        ((owner,),) = self.query("SELECT owner FROM conversations_run WHERE status = 'running'")
        return next(p for p in self.processes if p.pid == int(owner.split(":")[1]))

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(40)


@pytest.fixture(scope="module")
def scaled(
    database_url: str, tcp_redis: str, double: str, tmp_path_factory: Any
) -> Iterator[Scaled]:
    running = Scaled(tmp_path_factory.mktemp("scaled"), database_url, tcp_redis, double)
    try:
        for command in ("web", "worker", "worker"):  # at once: only one of them may migrate
            running.start(command)
        running.wait_healthy()
        yield running
    finally:
        running.stop()


def test_the_run_of_a_killed_worker_goes_on_in_the_other(scaled: Scaled) -> None:
    _, conversation = make_conversation(scaled)  # type: ignore[arg-type]
    text = script("count", words=30, delay_ms=100)
    stream = Stream(scaled, conversation, text)  # type: ignore[arg-type]
    stream.start()
    stream.wait_for("assistant_message", 5)
    first = scaled.owner()
    first.kill()
    stream.join(90)
    assert not stream.is_alive(), "the stream must end"
    whole = " ".join(f"w{i}" for i in range(30))
    assert stream.frames[-1] == "[DONE]"
    assert list(texts_after_retraction(stream.frames).values()) == [whole]
    assert listed(scaled, conversation) == [  # type: ignore[arg-type]
        ("user_message", text),
        ("assistant_message", whole),
    ]
    scaled.start("worker")


def test_a_stopped_worker_finishes_its_turn(scaled: Scaled) -> None:
    _, conversation = make_conversation(scaled)  # type: ignore[arg-type]
    stream = Stream(scaled, conversation, script("count", words=30, delay_ms=100))  # type: ignore[arg-type]
    stream.start()
    stream.wait_for("assistant_message", 5)
    worker = scaled.owner()
    worker.send_signal(signal.SIGTERM)
    stream.join(60)
    assert stream.frames[-1] == "[DONE]"
    kinds = {frame["message_type"] for frame in stream.frames[:-1]}
    assert "souveraine_retracted" not in kinds, "nobody had to say it again"
    assert worker.wait(30) == 0
    scaled.start("worker")


def test_without_redis_url_they_say_what_is_missing(scaled: Scaled) -> None:
    environment = {k: v for k, v in scaled.environment.items() if k != "REDIS_URL"}
    for command in ("web", "worker"):
        done = subprocess.run(
            [sys.executable, "manage.py", command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert "set REDIS_URL" in done.stderr


def test_an_open_address_needs_a_key(scaled: Scaled) -> None:
    environment = scaled.environment | {"SOUVERAINE_HOST": "0.0.0.0"}
    done = subprocess.run(
        [sys.executable, "manage.py", "web", "--port", str(free_port())],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "createkey" in done.stderr


@pytest.fixture
def hosts(database_url: str, django_db_blocker: Any) -> Iterator[Callable[[], AdvisoryLocks]]:
    """Makes the locks of as many hosts as a test wants."""
    template = connections.settings["default"]
    connections.settings["locks"] = {
        **{name: template[name] for name in ("TIME_ZONE", "AUTOCOMMIT", "ATOMIC_REQUESTS")},
        **{"CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False, "OPTIONS": {}, "PASSWORD": ""},
        **environ.Env.db_url_config(database_url),
    }
    made: list[AdvisoryLocks] = []

    def make() -> AdvisoryLocks:
        made.append(AdvisoryLocks(lambda: connections["locks"].copy()))
        return made[-1]

    with django_db_blocker.unblock():  # it is not Django's test database
        yield make
    for locks in made:
        locks.close()
    connections["locks"].close()
    del connections["locks"], connections.settings["locks"]


def test_two_hosts_never_hold_one_lock_together(hosts: Callable[[], AdvisoryLocks]) -> None:
    inside: list[int] = []
    most: list[int] = []

    def write(locks: AdvisoryLocks) -> None:
        for _ in range(20):
            with locks.held("memory", 10):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    here, there = hosts(), hosts()
    threads = [threading.Thread(target=write, args=(locks,)) for locks in (here, there) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(most) == 120
    assert max(most) == 1


def test_a_taken_lock_is_an_error_after_the_time_and_free_after_the_block(
    hosts: Callable[[], AdvisoryLocks],
) -> None:
    here, there = hosts(), hosts()
    with (
        here.held("memory", 5),
        here.held("memory", 5),  # the same thread may enter again
        there.held("another", 5),
        pytest.raises(Unavailable),
        there.held("memory", 0.1),
    ):
        pass
    with there.held("memory", 1):
        pass


def test_a_lost_connection_does_not_harm_the_work_under_the_lock(
    hosts: Callable[[], AdvisoryLocks], scaled: Scaled
) -> None:
    locks = hosts()
    with locks.held("memory", 5):
        scaled.query(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    with locks.held("memory", 5):
        pass


def test_a_writer_of_an_agents_memory_keeps_other_hosts_out(
    hosts: Callable[[], AdvisoryLocks], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, there = hosts(), hosts()
    monkeypatch.setattr("agents.services.shared_repository.advisory_locks", here)
    memory = SharedRepository.create(tmp_path / "agent", {}, user_author("bob"))
    name = f"memory of agent {memory.root.name}"
    with memory.exclusive():
        memory.write("system/human.md", "Name: Bob", user_author("bob"))  # enters again
        with pytest.raises(Unavailable), there.held(name, 0.1):
            pass
    with there.held(name, 1), pytest.raises(Unavailable), memory.exclusive(0.1):
        pass
    assert memory.read("system/human.md") == "Name: Bob"
