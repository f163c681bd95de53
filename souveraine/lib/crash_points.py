"""Named places in a turn at which a test kills the process; `souveraine.testing.crash` drives them.

Production code calls `reached("after_claim")`, which does nothing unless a point is armed: by the kit, or
by `TEST_CRASH_POINT=after_claim` (the third time: `after_claim@3`) in the process's environment.
"""

from __future__ import annotations

import os
import signal
import threading

WEB_POINTS = (
    "in_accept",  # message and run are written, not committed
    "after_accept",  # committed; the stream has no event, no worker knows of the run
    "before_enqueue",  # the stream has its first event
    "after_enqueue",
)
TURN_POINTS = (
    "before_claim",
    "after_claim",
    "after_prepare",
    "before_model_call",  # the prompt is compiled
    "after_delta",  # a piece of the answer was handed to the stream
    "after_model_call",  # the answer is whole, nothing of it is stored
    "in_store_answer",  # written, not committed
    "after_store_answer",
    "before_checkpoint",
    "after_checkpoint",
    "before_finish",
    "in_finish",  # written, not committed
    "after_finish",  # the run has ended, its stream lacks the terminal events
    "after_last_event",  # the stream has them, the run's row does not say so
    "after_close",
)
TOOL_POINTS = (
    "before_tool",  # not journalled
    "after_tool_started",  # journalled, not run
    "after_tool_ran",  # its effect is there, its return is not
    "in_store_return",  # written, not committed
    "after_tool_returned",  # stored, not streamed
    "between_tools",  # stored and handed to the stream
)
POINTS = (*WEB_POINTS, *TURN_POINTS, *TOOL_POINTS)


class _Armed:
    def __init__(self, text: str) -> None:
        self.point, _, count = text.partition("@")
        self.left = int(count or 1)
        self.lock = threading.Lock()


_armed = _Armed(os.environ["TEST_CRASH_POINT"]) if os.environ.get("TEST_CRASH_POINT") else None


def arm(text: str) -> None:
    """Die at `point`, or at `point@n` when it is reached for the n-th time. Raises ValueError for unknown ones."""
    global _armed
    armed = _Armed(text)
    if armed.point not in POINTS:
        raise ValueError(f"There is no crash point {armed.point!r}; known: {', '.join(POINTS)}.")
    _armed = armed


def reached(point: str) -> None:
    """Kill this process with SIGKILL when the point is armed; else nothing."""
    if _armed is None or _armed.point != point:
        return
    with _armed.lock:
        _armed.left -= 1
        if _armed.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
