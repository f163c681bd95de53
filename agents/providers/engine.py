"""Starts, shares and replaces the one local engine of a worker process. Spoken to by `local`."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.providers import errors
from agents.providers.base import join_url
from agents.providers.errors import Endpoint

ENGINE_PACKAGE = "xllamacpp"
ENGINE_REQUIREMENT = f"{ENGINE_PACKAGE}==2026.10.11549"  # as in the extra `local` of pyproject.toml
INSTALL_ADVICE = (
    f"install the engine into the server's environment: pip install {ENGINE_REQUIREMENT}"
)
START_SECONDS = 180.0  # some GB from a slow disk
STOP_SECONDS = 5.0
MAX_THREADS = 8
ENGINE_SCRIPT = Path(__file__).with_name("local_engine.py")


def is_installed(package: str = ENGINE_PACKAGE) -> bool:
    """Say whether the engine's package is there, without loading it."""
    return importlib.util.find_spec(package) is not None


@dataclass(frozen=True)
class LocalModel:
    """Weights to serve; `context_window` in tokens."""

    alias: str
    path: Path
    context_window: int


@dataclass
class _Running:
    model: LocalModel
    process: Process
    endpoint: Endpoint


class Engine:
    """At most one engine process. Calls to one model share it; another model waits until they are
    over.
    """

    def __init__(
        self,
        log_path: Path,
        *,
        script: Path = ENGINE_SCRIPT,
        package: str = ENGINE_PACKAGE,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._script, self._package = script, package
        self._log_path = log_path
        self._start_seconds = start_seconds
        self._running: _Running | None = None
        self._calls = 0
        self._turn = (
            asyncio.Lock()
        )  # fair: a waiting switch is not overtaken by calls to the old model
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_installed(self) -> bool:
        return is_installed(self._package)

    @asynccontextmanager
    async def lease(self, model: LocalModel, *, timeout_seconds: float) -> AsyncIterator[Endpoint]:
        """Give the endpoint that serves the model, started when necessary; it stays while the block
        runs.

        Raises ProviderError when the engine cannot be started, or is busy with another model for
        longer than `timeout_seconds`.
        """
        async with self._turn:
            running = self._running
            if running is None or running.model != model or running.process.returncode is not None:
                await self._wait_idle(timeout_seconds)
                await self._stop()
                running = self._running = await self._start(model)
            self._calls += 1
            self._idle.clear()
        try:
            yield running.endpoint
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def close(self) -> None:
        """End the engine process. Idempotent; the next lease starts a new one."""
        async with self._turn:
            await self._stop()

    async def _wait_idle(self, timeout_seconds: float) -> None:
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_seconds)
        except TimeoutError:
            busy = self._running.endpoint if self._running else self._endpoint("", "")
            raise errors.local_failure(
                busy,
                "the local engine is busy with another model",
                "send again later",
                is_transient=True,
            ) from None

    async def _start(self, model: LocalModel) -> _Running:
        if not self.is_installed:
            raise errors.local_failure(
                self._endpoint("", ""), "the local engine is not installed", INSTALL_ADVICE
            )
        key = secrets.token_urlsafe(24)  # the port is open to every user of this machine
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                str(self._script),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                # With spinning threads it fell to 1 token/s beside other work.
                env={**os.environ, "OMP_WAIT_POLICY": "passive"},
                start_new_session=True,
            )
        try:
            address = await asyncio.wait_for(
                self._address(process, model, key), self._start_seconds
            )
        except BaseException as exc:
            await _end(process)
            if isinstance(exc, TimeoutError):
                raise errors.local_failure(
                    self._endpoint("", ""),
                    f"the local engine did not start within {self._start_seconds:g} s",
                    f"see {self._log_path}",
                ) from None
            raise
        if not address:
            await _end(process)
            raise errors.local_failure(
                self._endpoint("", ""),
                f"the local engine could not load {model.path.name}: {self._last_log_line()}",
                f"see {self._log_path}",
            )
        return _Running(model, process, self._endpoint(join_url(address, "v1"), key))

    async def _address(self, process: Process, model: LocalModel, key: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        config = {
            "path": str(model.path),
            "alias": model.alias,
            "key": key,
            "context_window": model.context_window,
            "threads": _threads(),
        }
        process.stdin.write(json.dumps(config).encode() + b"\n")
        try:
            await process.stdin.drain()
        except ConnectionError:
            return ""  # it died at once; its log tells why
        return (await process.stdout.readline()).decode().strip()

    async def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await _end(running.process)

    def _endpoint(self, url: str, key: str) -> Endpoint:
        return Endpoint("local", "the local engine", url or "this machine", api_key=key)

    def _last_log_line(self) -> str:
        lines = self._log_path.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no log")


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def _threads() -> int:
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(usable, MAX_THREADS)
