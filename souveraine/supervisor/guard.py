"""Runs in front of each child: makes it end when its supervisor dies, then becomes the child.

Started as a script (`python -I -S guard.py <supervisor pid> [--poll] -- command…`), so it must not
import anything of ours. The process id stays the same across the final exec.
On Linux the kernel sends SIGTERM when the supervisor is gone; elsewhere a small watcher polls.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1  # linux/prctl.h
POLL_SECONDS = 0.5


def ask_kernel() -> bool:
    """Ask for SIGTERM at the parent's death; False where the system has no such call."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def start_watcher(supervisor_pid: int) -> None:
    """Fork a process that sends SIGTERM to this one once the supervisor is gone."""
    child_pid = os.getpid()
    if os.fork():
        return
    os.setsid()
    # Without this the watcher keeps the data directory's lock and the output pipe open.
    os.closerange(0, 1024)
    while os.getppid() == child_pid:
        try:
            os.kill(supervisor_pid, 0)
        except ProcessLookupError:
            os.kill(child_pid, signal.SIGTERM)
            break
        except PermissionError:
            pass
        time.sleep(POLL_SECONDS)
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Arrange for the end of the supervisor, then exec the command after `--`."""
    split = arguments.index("--")
    supervisor_pid, command = int(arguments[0]), arguments[split + 1 :]
    if "--poll" in arguments[:split] or not ask_kernel():
        start_watcher(supervisor_pid)
    if os.getppid() != supervisor_pid:  # it died before we asked to be told
        sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as exc:
        sys.exit(f"Cannot start {command[0]}: {exc.strerror}.")


if __name__ == "__main__":
    main(sys.argv[1:])
