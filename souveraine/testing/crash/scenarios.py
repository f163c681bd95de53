"""What is played at which crash points. Another kind of turn is one more `Scenario` in SCENARIOS."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from souveraine.lib.crash_points import TOOL_POINTS, TURN_POINTS, WEB_POINTS

BLOCK = "human"  # the tools with effects append to it; a call that ran twice is there twice
ASKS_AGAIN = ("after_delta", "after_model_call", "in_store_answer")  # asked, but not stored
HIDES_OUTCOME = ("after_tool_started", "after_tool_ran", "in_store_return")


@dataclass(frozen=True)
class Call:
    """A tool call of the model. `effect` is what it leaves in the block; without one it is idempotent."""

    name: str
    arguments: dict[str, Any]
    effect: str = ""


@dataclass(frozen=True)
class Scenario:
    """One kind of turn: what the model says, and the points (`name` or `name@n`) at which it is killed."""

    name: str
    points: tuple[str, ...]
    answer: str = "one two three four five"
    intro: str = ""
    calls: tuple[Call, ...] = ()
    delay_ms: int = 15  # between tokens, so that some of them have reached the stream
    options: dict[str, Any] = field(default_factory=lambda: {"stream_tokens": True})
    gated: tuple[str, ...] = ()  # tools that wait for approval, which the client then gives
    is_killed_in_answer: bool = (
        False  # in the run that carries the approval out, not in the one that asks
    )

    def message(self, case_id: str) -> str:
        """Return the user's message: what the model double is to do, under this id."""
        script: dict[str, Any] = {"id": case_id, "text": self.answer, "delay_ms": self.delay_ms}
        if self.calls:
            tools = [{"name": c.name, "arguments": c.arguments} for c in self.calls]
            script |= {"tools": tools, "intro": self.intro}
        return f"Go. ## {json.dumps(script)}"


@dataclass(frozen=True, eq=False)
class Case:
    """A scenario killed at a point."""

    scenario: Scenario
    point: str

    @property
    def id(self) -> str:
        return f"{self.scenario.name}-{self.point}"

    @property
    def place(self) -> str:
        """The point without its count."""
        return self.point.partition("@")[0]

    @property
    def is_web(self) -> bool:
        return self.place in WEB_POINTS

    @property
    def model_calls(self) -> int:
        """How often the model is asked: once for each step, and again for one that was not stored."""
        return 1 + bool(self.scenario.calls) + (self.place in ASKS_AGAIN)

    @property
    def hidden_call(self) -> int | None:
        """The position of the call whose outcome the crash hides, None when there is none."""
        return int(self.point.partition("@")[2] or 1) - 1 if self.place in HIDES_OUTCOME else None


def _insert(word: str) -> Call:
    return Call("memory_insert", {"label": BLOCK, "new_string": word}, effect=word)


CALLS = (_insert("alpha"), Call("conversation_search", {"query": "Go"}), _insert("omega"))
SCENARIOS: tuple[Scenario, ...] = (
    Scenario("plain", (*WEB_POINTS, *TURN_POINTS, "after_delta@4")),
    Scenario("whole", ("after_model_call", "after_store_answer"), options={}),
    Scenario(
        "tools",
        (
            *TURN_POINTS,
            "after_delta@4",
            "after_store_answer@2",
            "before_model_call@2",
            "after_delta@12",
            *(f"{point}@{n}" for point in TOOL_POINTS for n in range(1, len(CALLS) + 1)),
        ),
        intro="I shall look.",
        calls=CALLS,
    ),
)
GATED = ("memory_insert",)
SCENARIOS += (
    Scenario(
        "asking",
        (
            "after_delta@7",
            "in_store_answer",
            "after_store_answer",
            "before_finish",
            "after_finish",
        ),
        intro="I shall look.",
        calls=CALLS,
        gated=GATED,
    ),
    Scenario(
        "approved",
        (
            *WEB_POINTS,
            "before_claim",
            "after_claim",
            "before_model_call",
            "after_delta",
            "after_finish",
            *(f"{point}@{n}" for point in TOOL_POINTS for n in (1, len(CALLS))),
        ),
        intro="I shall look.",
        calls=CALLS,
        gated=GATED,
        is_killed_in_answer=True,
    ),
)
CASES = tuple(Case(scenario, point) for scenario in SCENARIOS for point in scenario.points)
