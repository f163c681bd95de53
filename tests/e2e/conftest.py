"""The whole server as `manage.py serve` starts it, and the model double beside it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Serve:
    """A `manage.py serve` of one data directory; can be stopped and started again."""

    def __init__(self, data_dir: Path, environment: dict[str, str]) -> None:
        self.data_dir, self.port = data_dir, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        kept = {
            k: v
            for k, v in os.environ.items()
            if k in ("PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "TMPDIR")
        }
        self.environment = {
            **kept,
            "SOUVERAINE_DATA_DIR": str(data_dir),
            "SOUVERAINE_PORT": str(self.port),
            "SOUVERAINE_REDIS_SERVER": "bundled",
            "SOUVERAINE_DEMO_MODEL": "off",
            "OLLAMA_BASE_URL": "http://127.0.0.1:9",
            "SHUTDOWN_TIMEOUT": "5",
            **environment,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.log = data_dir.parent / f"{data_dir.name}.log"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "serve"],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while b"is ready at" not in self.log.read_bytes().split(b"--- stopped ---")[-1]:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"serve did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(40)
        with self.log.open("ab") as log:
            log.write(b"--- stopped ---\n")
        return code

    def pids(self, what: str) -> list[int]:
        """The processes of this server whose command line contains `what`."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                environment = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if what in command and f"SOUVERAINE_DATA_DIR={self.data_dir}\0" in environment:
                found.append(int(entry.name))
        return found

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a management command on the same data directory."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )


@contextmanager
def model_double() -> Iterator[str]:
    """A model double process; yields its base URL with /v1."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "souveraine.testing.fake_openai", "--port", str(port)], cwd=ROOT
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                httpx.get(f"{url}/v1/models")
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield f"{url}/v1"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def double() -> Iterator[str]:
    with model_double() as url:
        yield url


@pytest.fixture(scope="module")
def server(double: str, tmp_path_factory: Any) -> Iterator[Serve]:
    serve = Serve(
        tmp_path_factory.mktemp("serve") / "data",
        {"OPENAI_BASE_URL": double, "BIFROST_BASE_URL": double},
    )
    serve.start()
    yield serve
    if serve.process is not None and serve.process.poll() is None:
        serve.stop()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Everything in this folder is e2e, with room for slow starts."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(240))
