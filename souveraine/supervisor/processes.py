"""One child process: started behind `guard.py` in a session of its own.

Its output is copied to the terminal, behind its name, and to a log file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

GUARD = Path(__file__).with_name("guard.py")
LOG_LIMIT_BYTES = 10 * 1024 * 1024
LINE_LIMIT_BYTES = 64 * 1024  # a line without end must not fill the memory


@dataclass(frozen=True)
class ChildSpec:
    """How to start and stop one child. `stop_seconds`: what it gets between SIGTERM and SIGKILL."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    inherit: tuple[int, ...] = ()  # descriptors
    stop_seconds: float = 10.0


class Console:
    """Writes whole lines to the terminal from several threads; a closed terminal is no error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def say(self, text: str, name: str = "serve") -> None:
        """Print each line of `text` behind the name of who says it."""
        with self._lock:
            try:
                for line in text.splitlines() or [""]:
                    self._stream.write(f"{name:<7}| {line}\n" if line else f"{name:<7}|\n")
                self._stream.flush()
            except (OSError, ValueError):
                pass  # the terminal is gone; the log files go on


def rotate(path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
    """Rename a log over the limit to `<name>.1`, replacing the one before."""
    try:
        if path.stat().st_size > limit_bytes:
            path.replace(path.with_name(f"{path.name}.1"))
    except FileNotFoundError:
        pass


class Child:
    """A running child. `poll` and `signal` are safe to call after its end.

    To be created in the main thread only: the kernel tells a child of the death of the *thread*
    that started it.
    """

    def __init__(self, spec: ChildSpec, console: Console, log: Path) -> None:
        self.spec, self._console, self._log = spec, console, log
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), "--", *spec.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(spec.environment),
            cwd=spec.directory,
            pass_fds=spec.inherit,
            start_new_session=True,  # a Ctrl-C in the terminal is for the supervisor alone
        )
        self.pid = self._process.pid
        stream = self._process.stdout
        assert stream is not None
        self._pump = threading.Thread(target=self._copy_output, args=(stream,), daemon=True)
        self._pump.start()

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal), or None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Send a signal to the child itself."""
        if self.poll() is None:
            self._process.send_signal(number)

    def kill_group(self) -> None:
        """SIGKILL the child and whatever of its own processes is still in its group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def finish_output(self) -> None:
        """Wait shortly for the last lines of an ended child to be copied."""
        self._pump.join(timeout=1.0)

    def _copy_output(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(LINE_LIMIT_BYTES):
                self._append(line)
                self._console.say(line.decode(errors="replace").rstrip("\r\n"), self.spec.name)

    def _append(self, line: bytes) -> None:
        # Opened per line: output is rare, and rotation needs no coordination this way.
        try:
            rotate(self._log)
            with self._log.open("ab") as file:
                file.write(line)
        except OSError:
            pass  # a full disk must not stop the child's output from being drained


def describe_end(code: int) -> str:
    """Say how a process ended: `exit code 3`, or `signal 9, SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
