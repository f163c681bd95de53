"""Start a server and a model double for a benchmark, and read what they cost from /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[3]
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
START_SECONDS = 180.0


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, seconds: float = START_SECONDS) -> float:
    """Wait for a 200; return how long it took, in seconds."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        try:
            if httpx.get(url, timeout=1).status_code == 200:
                return time.monotonic() - started
        except httpx.HTTPError:
            pass
        time.sleep(0.02)
    raise SystemExit(f"{url} did not answer within {seconds:g} s.")


@dataclass
class Running:
    """A started server."""

    url: str
    pid: int
    start_seconds: float


@contextmanager
def model_double() -> Iterator[str]:
    """Run the model double; yields its address without /v1."""
    port = free_port()
    command = [sys.executable, "-m", "souveraine.testing.fake_openai", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        wait_for(f"http://127.0.0.1:{port}/v1/models")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def server(data_dir: Path, double: str, **environment: str) -> Iterator[Running]:
    """Run `manage.py serve` on `data_dir` with the double as its only provider."""
    port = free_port()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(data_dir.parent),
        "SOUVERAINE_DATA_DIR": str(data_dir),
        "SOUVERAINE_PORT": str(port),
        "SOUVERAINE_DEMO_MODEL": "off",
        "SOUVERAINE_LOG_LEVEL": "WARNING",
        "OPENAI_BASE_URL": f"{double}/v1",
        "OLLAMA_BASE_URL": "http://127.0.0.1:9",
        "SHUTDOWN_TIMEOUT": "5",
        **environment,
    }
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "manage.py", "serve"]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    try:
        yield Running(url, process.pid, wait_for(f"{url}/v1/health/"))
    finally:
        process.terminate()
        process.wait(40)


def tree(root: int) -> list[int]:
    """Return the process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat[stat.rindex(")") + 2 :].split()[1]), []).append(
                int(entry.name)
            )
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Return user and system time of the processes together."""
    total = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        total += sum(map(int, stat[stat.rindex(")") + 2 :].split()[11:13]))
    return total / TICKS_PER_SECOND


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def name_of(pid: int) -> str:
    """Return which of our processes this is."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    for word in ("supervisor", "celery", "daphne", "redis"):
        if word in command:
            return {"celery": "worker", "daphne": "web"}.get(word, word)
    return command[:40]
