"""The loop that keeps the children alive and stops them in the right order.

Runs in the main thread of `serve`; signals only count requests and wake the loop. Children are
stopped in the reverse order of their start (worker, web, redis), each with its own deadline; from
then on nothing is restarted.
"""

from __future__ import annotations

import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from souveraine.supervisor.processes import Child, ChildSpec, Console, describe_end, rotate

FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 10.0
HEALTHY_SECONDS = 60.0  # a child that ran this long starts again without a penalty
HURRY_SECONDS = 2.0  # what is left after a second Ctrl-C
HELPER_SECONDS = 60.0  # longest life of a one-off process
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class GaveUp(Exception):
    """A child ended again and again before the server was ever healthy."""


@dataclass
class _Managed:
    spec: ChildSpec
    child: Child | None = None
    started_at: float = 0.0
    delay: float = FIRST_DELAY_SECONDS
    restart_at: float | None = None
    failures: int = 0
    is_stopping: bool = False
    last_code: int = 0


@dataclass
class _Helper:
    child: Child
    deadline: float
    is_optional: bool


class Supervisor:
    """Start, watch and stop children; use as a context manager, in the main thread.

    `on_death(name, pid)` is called at once for each child that ended without being asked to, or
    had to be killed; `on_start()` after each start. `give_up_after` unasked ends of one child
    before `is_healthy` is set raise GaveUp from `tick`.
    """

    def __init__(
        self,
        console: Console,
        log_dir: Path,
        on_death: Callable[[str, int], None] = lambda name, pid: None,
        on_start: Callable[[], None] = lambda: None,
        give_up_after: int = 3,
    ) -> None:
        self._console, self._log_dir = console, log_dir
        self._on_death, self._on_start, self._give_up_after = on_death, on_start, give_up_after
        self._managed: dict[str, _Managed] = {}
        self._helpers: list[_Helper] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._old_handlers: dict[int, Any] = {}
        self._old_wakeup = -1
        self._wake_read, self._wake_write = socket.socketpair()
        self.stop_requests = 0
        self.is_healthy = False
        self._is_ending = False

    def __enter__(self) -> Supervisor:
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._old_wakeup = signal.set_wakeup_fd(
            self._wake_write.fileno(), warn_on_full_buffer=False
        )
        for number in STOP_SIGNALS:
            self._old_handlers[number] = signal.signal(number, self._count_request)
        # Python wakes the loop only for signals that have a handler.
        self._old_handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop_all()
        finally:
            signal.set_wakeup_fd(self._old_wakeup)
            for number, handler in self._old_handlers.items():
                signal.signal(number, handler)
            self._wake_read.close()
            self._wake_write.close()

    def _count_request(self, number: int, frame: FrameType | None) -> None:
        self.stop_requests += 1

    def request_stop(self) -> None:
        """Ask the loop to end, from any thread."""
        self.stop_requests = max(self.stop_requests, 1)
        self._wake()

    def _wake(self) -> None:
        try:
            self._wake_write.send(b"\0")
        except BlockingIOError:
            pass  # so many wake-ups are waiting that one more changes nothing

    def pids(self) -> dict[str, int]:
        """Return name → pid of the children that run now."""
        return {name: m.child.pid for name, m in self._managed.items() if m.child}

    def start(self, spec: ChildSpec) -> None:
        """Start a child and keep it alive from now on."""
        managed = self._managed[spec.name] = _Managed(spec)
        self._launch(managed)

    def forget(self, name: str) -> None:
        """Stop looking after a child that has ended (to start it differently)."""
        self._managed.pop(name, None)

    def has_ended(self, name: str) -> bool:
        """Tell whether the child is down at this moment, without waiting for a tick."""
        child = self._managed[name].child
        return child is None or child.poll() is not None

    def run_once(
        self, spec: ChildSpec, seconds: float = HELPER_SECONDS, is_optional: bool = False
    ) -> None:
        """Start a one-off process: reaped, killed after `seconds`, never restarted.

        An optional one is ended at once when the server stops; the others are waited for.
        """
        child = Child(spec, self._console, self._log_dir / f"{spec.name}.log")
        self._helpers.append(_Helper(child, time.monotonic() + seconds, is_optional))

    def call_soon(self, function: Callable[[], None]) -> None:
        """Have the loop call `function` in the main thread; may be used from any thread."""
        self._calls.append(function)
        self._wake()

    def run(self) -> None:
        """Supervise until a stop is requested."""
        while not self.stop_requests:
            self.tick(self._next_wait())

    def tick(self, timeout_seconds: float) -> None:
        """Wait for an event at most that long, then note ends and restart what is due."""
        if select.select([self._wake_read], [], [], max(timeout_seconds, 0.0))[0]:
            self._wake_read.recv(4096)
        while self._calls:
            self._calls.popleft()()
        now = time.monotonic()
        self._reap_helpers(now)
        for managed in list(self._managed.values()):
            if managed.child and (code := managed.child.poll()) is not None:
                self._note_end(managed, code, now)
            elif managed.restart_at is not None and now >= managed.restart_at:
                self._launch(managed)

    def stop_all(self) -> None:
        """Stop the children in the reverse order of their start; safe to call twice."""
        self._is_ending = True
        for managed in self._managed.values():
            managed.restart_at = None
        for helper in [h for h in self._helpers if h.is_optional]:
            helper.child.kill_group()
            self._helpers.remove(helper)
        for managed in reversed(list(self._managed.values())):
            self._stop(managed)
        deadline = time.monotonic() + HELPER_SECONDS
        while self._helpers and time.monotonic() < deadline and self.stop_requests < 2:
            self.tick(0.1)
        for helper in self._helpers:
            helper.child.kill_group()

    def _next_wait(self) -> float:
        due = [m.restart_at for m in self._managed.values() if m.restart_at is not None]
        due += [helper.deadline for helper in self._helpers]
        return max(min(due) - time.monotonic(), 0.0) if due else 3600.0

    def _launch(self, managed: _Managed) -> None:
        log = self._log_dir / f"{managed.spec.name}.log"
        rotate(log)
        managed.restart_at = None
        managed.started_at = time.monotonic()
        managed.child = Child(managed.spec, self._console, log)
        self._on_start()

    def _note_end(self, managed: _Managed, code: int, now: float) -> None:
        child, name = managed.child, managed.spec.name
        assert child is not None
        child.kill_group()  # its own children must not outlive it
        child.finish_output()
        managed.child, managed.last_code = None, code
        if managed.is_stopping:
            return
        if self._is_ending:
            self._console.say(f"{name} ended before its turn ({describe_end(code)}).")
            if code:
                self._on_death(name, child.pid)
            return
        if now - managed.started_at >= HEALTHY_SECONDS:
            managed.delay, managed.failures = FIRST_DELAY_SECONDS, 0
        managed.failures += 1
        if not self.is_healthy and managed.failures >= self._give_up_after:
            raise GaveUp(
                f"{name} ended {managed.failures} times during start-up (last: "
                f"{describe_end(code)}). Its output is above and in "
                f"{self._log_dir / f'{name}.log'}."
            )
        self._console.say(
            f"{name} ended ({describe_end(code)}); starting it again in {managed.delay:g} s."
        )
        managed.restart_at = now + managed.delay
        managed.delay = min(managed.delay * 2, MAX_DELAY_SECONDS)
        self._on_death(name, child.pid)

    def _reap_helpers(self, now: float) -> None:
        for helper in list(self._helpers):
            child = helper.child
            code = child.poll()
            if code is None and now < helper.deadline:
                continue
            if code is None:
                child.kill_group()
            elif code:
                self._console.say(f"{child.spec.name} failed ({describe_end(code)}).")
            self._helpers.remove(helper)

    def _stop(self, managed: _Managed) -> None:
        managed.is_stopping = True
        child = managed.child
        if child is None:
            return
        child.signal(signal.SIGTERM)
        if not self._wait_for_end(managed):
            self._console.say(f"{managed.spec.name} did not stop in time; ending it.")
            child.kill_group()
            while managed.child:
                self.tick(0.1)
        if managed.last_code != 0:
            self._on_death(managed.spec.name, child.pid)

    def _wait_for_end(self, managed: _Managed) -> bool:
        deadline = time.monotonic() + managed.spec.stop_seconds
        is_hurried = False
        while managed.child and time.monotonic() < deadline and self.stop_requests < 3:
            self.tick(min(0.2, max(deadline - time.monotonic(), 0.0)))
            if self.stop_requests >= 2 and not is_hurried:
                is_hurried = True
                deadline = min(deadline, time.monotonic() + HURRY_SECONDS)
        return managed.child is None
