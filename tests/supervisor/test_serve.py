"""`manage.py serve` as a process: start, refusal, restart of the worker, clean stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from souveraine.supervisor import listen
from tests.supervisor.conftest import wait_until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0


def free_port() -> int:
    with listen.bind("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


class Serve:
    """A `serve` process with what it has printed so far."""

    def __init__(self, data_dir: Path, port: int, **settings: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SOUVERAINE_")}
        environment |= {
            "SOUVERAINE_DATA_DIR": str(data_dir),
            "SOUVERAINE_PORT": str(port),
            "SOUVERAINE_DEMO_MODEL": "off",
            "SOUVERAINE_REDIS_SERVER": "bundled",
            "OLLAMA_BASE_URL": "http://127.0.0.1:1",
            "SHUTDOWN_TIMEOUT": "5",
        } | settings
        for name in ("REDIS_URL", "DATABASE_URL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
            environment.pop(name, None)
        self.port, self.lines = port, [""]
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "serve"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as stream:
            self.lines.extend(stream)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def wait_ready(self) -> None:
        wait_until(
            lambda: "is ready at" in self.text or self.process.poll() is not None, START_SECONDS
        )
        assert "is ready at" in self.text, self.text

    def end(self) -> int:
        code = self.process.wait(timeout=30)
        self._reader.join(5)
        return code


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    running = Serve(tmp_path / "data", free_port(), SOUVERAINE_PROT="1")
    try:
        running.wait_ready()
        yield running
    finally:
        running.process.terminate()
        running.end()


def pid_of(data_dir: Path, name: str) -> int:
    match = re.search(rf'"{name}": (\d+)', (data_dir / "serve.lock").read_text())
    return int(match[1]) if match else 0


def test_it_works(serve: Serve, tmp_path: Path) -> None:
    assert f"http://127.0.0.1:{serve.port}" in serve.text
    assert "SOUVERAINE_PROT is ignored. Did you mean SOUVERAINE_PORT?" in serve.text
    assert listen.is_healthy("127.0.0.1", serve.port, 5)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_a_second_one_on_the_same_data_is_refused_with_pid(serve: Serve, tmp_path: Path) -> None:
    second = Serve(tmp_path / "data", free_port())
    assert second.end() == 1
    assert f"pid {serve.process.pid}" in second.text
    assert f"http://127.0.0.1:{serve.port}" in second.text
    assert listen.is_healthy("127.0.0.1", serve.port, 5)


def test_a_second_one_on_the_same_port_is_refused_with_the_port(
    serve: Serve, tmp_path: Path
) -> None:
    second = Serve(tmp_path / "other", serve.port)
    assert second.end() == 1
    assert f"Port {serve.port}" in second.text
    assert "redis" not in second.text


def test_an_address_that_others_can_reach_needs_a_key(tmp_path: Path) -> None:
    refused = Serve(tmp_path / "data", free_port(), SOUVERAINE_HOST="0.0.0.0")
    assert refused.end() == 1
    assert "createkey" in refused.text


@pytest.mark.parametrize("name", ["worker", "web", "redis"])
def test_a_killed_child_comes_back(serve: Serve, tmp_path: Path, name: str) -> None:
    first = pid_of(tmp_path / "data", name)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: pid_of(tmp_path / "data", name) not in (0, first))
    assert f"{name} ended (signal 9, SIGKILL)" in serve.text
    wait_until(lambda: listen.is_healthy("127.0.0.1", serve.port, 5), 20)
    assert "release failed" not in serve.text


def test_a_clean_stop_and_a_quick_second_start(tmp_path: Path) -> None:
    port = free_port()
    first = Serve(tmp_path / "data", port)
    first.wait_ready()
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 0
    assert first.text.rstrip().endswith("Stopped.")
    assert not list(Path(os.environ["TMPDIR"]).glob("souveraine-*"))
    began = time.monotonic()
    second = Serve(tmp_path / "data", port)
    second.wait_ready()
    took = time.monotonic() - began
    second.process.terminate()
    assert second.end() == 0
    assert took < 15, "5 s alone on two cores; thrice that beside other tests"


def test_after_kill_9_the_next_one_starts_cleanly(tmp_path: Path) -> None:
    port = free_port()
    first = Serve(tmp_path / "data", port)
    first.wait_ready()
    first.process.kill()
    first.end()
    second = Serve(tmp_path / "data", port)
    second.wait_ready()
    second.process.terminate()
    assert second.end() == 0
