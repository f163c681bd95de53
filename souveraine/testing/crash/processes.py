"""Processes that are made fast and may be killed: forks of one that has everything loaded.

The parent never opens a connection nor starts a thread, so a fork begins as a fresh process does.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Fork:
    """A child that runs one function; what it returns (JSON) comes through a pipe."""

    pid: int
    pipe: int

    def wait(self) -> Any:
        """Return the function's result. Raises ChildKilled after SIGKILL, ChildFailed after an exception."""
        with os.fdopen(self.pipe, "rb") as reader:
            data = reader.read()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            raise ChildKilled(self.pid)
        if status != 0:
            raise ChildFailed(data.decode() or f"status {status}")
        return json.loads(data)


class ChildKilled(Exception):
    """The child died at its crash point."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} was killed")
        self.pid = pid


class ChildFailed(Exception):
    """The child ended by an exception; the text is its traceback."""


def fork(function: Callable[..., Any], *arguments: Any) -> Fork:
    """Run `function(*arguments)` in a child. Its result must be JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Fork(pid, reader)
    os.close(reader)
    status = 1
    try:
        data = json.dumps(function(*arguments)).encode()
        status = 0
    except BaseException:  # the edge of a process: whatever it was, the parent is told
        data = traceback.format_exc().encode()
    with os.fdopen(writer, "wb") as out:
        out.write(data)
    os._exit(status)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run `function(*arguments)` in a child and wait for its result."""
    return fork(function, *arguments).wait()
