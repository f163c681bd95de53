"""A whole installation of one's own for tests that kill its parts: database, Redis, double, web, workers.

Nothing that is there is touched: the data directory is temporary, Redis listens on a socket in it, and on a
PostgreSQL server (`postgres_url`, without a database) a new database is made and dropped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg

from souveraine.supervisor.redis import PrivateRedis, choose
from souveraine.testing.bench.processes import ROOT, free_port, model_double, wait_for

Process = subprocess.Popen[bytes]
KEPT = ("PATH", "HOME", "LANG", "TMPDIR")
STOP_SECONDS = 40.0


class Stack:
    """Starts and kills the parts. `environment` is what each of our processes gets."""

    def __init__(
        self, folder: Path, double_url: str, database_url: str, lease_seconds: float
    ) -> None:
        self.folder, self.double_url = folder, double_url
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._redis = PrivateRedis(choose("", "").binary, folder / "data", folder)
        (folder / "data" / "logs").mkdir(parents=True)
        self._redis_process: Process | None = None
        self._processes: list[Process] = []
        self.environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {
            "PYTHONPATH": str(ROOT),
            "SOUVERAINE_DATA_DIR": str(folder / "data"),
            "SOUVERAINE_PORT": str(self.port),
            "SOUVERAINE_DEMO_MODEL": "off",
            "SOUVERAINE_LEASE_SECONDS": f"{lease_seconds:g}",
            "OPENAI_BASE_URL": f"{double_url}/v1",
            "OLLAMA_BASE_URL": "http://127.0.0.1:9",
            "REDIS_URL": self._redis.url,
            "SHUTDOWN_TIMEOUT": "5",
        }
        if database_url:
            self.environment["DATABASE_URL"] = database_url

    def start_redis(self) -> None:
        """Start Redis and wait until it answers."""
        self._redis_process = subprocess.Popen(self._redis.command(), cwd=self.folder)
        deadline = time.monotonic() + 30
        while not self._redis.is_ready():
            if time.monotonic() > deadline:
                raise SystemExit(f"Redis did not start: {self._redis.last_words()}")
            time.sleep(0.01)

    def kill_redis(self, *, loses_data: bool) -> None:
        """Kill Redis; its files survive or not."""
        assert self._redis_process is not None
        self._redis_process.kill()
        self._redis_process.wait()
        if loses_data:
            shutil.rmtree(self._redis.directory)

    def manage(self, *arguments: str) -> None:
        """Run a management command to its end."""
        command = [sys.executable, "manage.py", *arguments]
        subprocess.run(
            command, cwd=ROOT, env=self.environment, check=True, stdout=subprocess.DEVNULL
        )

    def start(self, command: str) -> Process:
        """Start `web` or `worker`; their output is in `<folder>/<command>.log`."""
        with self.log(command).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", command],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def log(self, command: str) -> Path:
        """Return where the output of a command is."""
        return self.folder / f"{command}.log"

    def wait_healthy(self) -> None:
        """Wait until the web process answers."""
        wait_for(f"{self.url}/v1/health/")

    def bury(self, process: Process) -> None:
        """Do what `serve` does after the death of a worker: give its runs back."""
        self.manage("release_leases", "--pid", str(process.pid))

    def kill(self, process: Process) -> None:
        """Kill one of our processes."""
        process.kill()
        process.wait()
        self._processes.remove(process)

    def stop(self) -> None:
        """End everything."""
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes:
            process.wait(STOP_SECONDS)
        if self._redis_process is not None:
            self._redis_process.kill()
            self._redis_process.wait()


@contextmanager
def new_database(postgres_url: str) -> Iterator[str]:
    """Make a database on the server and drop it at the end; yields its URL. "" stands for SQLite."""
    if not postgres_url:
        yield ""
        return
    name = f"souveraine_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(f"{postgres_url}/postgres", autocommit=True, connect_timeout=3) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    try:
        yield f"{postgres_url}/{name}"
    finally:
        with psycopg.connect(f"{postgres_url}/postgres", autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system of `size` at the folder; "" leaves it as it is."""
    folder.mkdir()
    if not size:
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def stack(
    postgres_url: str = "", lease_seconds: float = 30.0, disk_size: str = ""
) -> Iterator[Stack]:
    """Make a stack with Redis and the double running; web and workers are the caller's to start.

    `disk_size` ("64m") puts the data directory on a file system of that size, which only root can mount.
    """
    folder = Path(tempfile.mkdtemp(prefix="sv-", dir="/tmp"))
    try:
        with (
            small_disk(folder / "data", disk_size),
            new_database(postgres_url) as database_url,
            model_double() as double_url,
        ):
            made = Stack(folder, double_url, database_url, lease_seconds)
            try:
                made.start_redis()
                yield made
            finally:
                made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def get(url: str) -> object:
    """Return the JSON at a URL."""
    return httpx.get(url, timeout=30).json()
