"""Fixtures for tests of `serve`'s parts: tiny Python children instead of the real ones."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from souveraine.supervisor.processes import ChildSpec, Console
from souveraine.supervisor.supervisor import Supervisor

SpecMaker = Callable[..., ChildSpec]


@pytest.fixture(autouse=True)
def short_temporary_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    # pytest's own are too long for a socket, and sockets' directories must not pile up in /tmp.
    tmp_path_factory.getbasetemp()  # made now, or it would lie in the one that is removed below
    with tempfile.TemporaryDirectory(prefix="sv-", dir="/tmp") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        monkeypatch.setenv("TMPDIR", path)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def console(output: io.StringIO) -> Console:
    return Console(output)


@pytest.fixture
def spec(tmp_path: Path) -> SpecMaker:
    def make(name: str, code: str, **options: object) -> ChildSpec:
        return ChildSpec(name, (sys.executable, "-c", code), dict(os.environ), tmp_path, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def deaths() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def supervisor(
    tmp_path: Path, console: Console, deaths: list[tuple[str, int]]
) -> Iterator[Supervisor]:
    with Supervisor(console, tmp_path, lambda name, pid: deaths.append((name, pid))) as running:
        yield running


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition not reached in time"
        time.sleep(0.02)
