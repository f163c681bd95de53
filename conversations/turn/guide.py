"""The tool rules at the present point of a turn: the rows read, the rules of `turn.tool_rules` asked.

Only for agents that have such rules; then one query before each model call and after the tools.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from conversations.models import Message, Run
from conversations.services.approvals import TURN_BEGAN, denial_text
from conversations.turn.tool_rules import Called, Outcome, Standing, ToolRules

MAX_HINTS = 3  # of a turn: a model that does not heed them would use up all of its steps
HINT_MARK = "[ToolRule]"
HINT = HINT_MARK + " The turn cannot end yet: call {names} first, then finish your answer."
CONSTRAINT = "[ToolConstraintError] Cannot call {name}, valid tools include: {valid}."


@dataclass(frozen=True)
class Guide:
    """The rules, the names of the tools that there are, and where the turn stands."""

    rules: ToolRules
    available: tuple[str, ...]
    standing: Standing
    hints: int = 0

    @property
    def offered(self) -> list[str]:
        """What may be called now."""
        return self.rules.offered(self.standing, self.available)

    def permitted(self, names: Sequence[str]) -> list[bool]:
        """Return for each call of an answer given now whether it may be made."""
        return self.rules.permitted(self.standing, self.available, names)

    def refusals(self, message: Message) -> dict[int, str]:
        """Return what to answer to the forbidden calls of the message, by position."""
        names = [call["name"] for call in message.tool_calls]
        return {
            position: self._refusal(name)
            for position, (name, allowed) in enumerate(
                zip(names, self.permitted(names), strict=True)
            )
            if not allowed
        }

    def _refusal(self, name: str) -> str:
        text = CONSTRAINT.format(name=name, valid=self.offered)
        reason = self.rules.reason(self.standing, self.available, name)
        return f"{text} {reason}".strip()

    def completed(self, call: dict[str, Any]) -> dict[str, Any]:
        """Return the call with the arguments that the rules set, so that a person sees what will run."""
        set_by_rules = self.rules.prefilled(self.standing, self.available, call["name"])
        if not set_by_rules:
            return call
        try:
            given = json.loads(call["arguments"] or "{}")
        except (ValueError, RecursionError):
            return call  # the call will be answered with what is wrong with it
        if not isinstance(given, dict):
            return call
        return {**call, "arguments": json.dumps({**given, **set_by_rules}, ensure_ascii=False)}

    def hint(self) -> str | None:
        """Return what to tell a model that ended without a call it owes, None when it may end."""
        owed = self.rules.owed(self.standing, self.available)
        if not owed or self.hints >= MAX_HINTS:
            return None
        return HINT.format(names=" or ".join(owed))


@dataclass
class _Turn:
    """What the rows of the turn say: the calls of each answer, oldest first, and what came after them."""

    answers: list[tuple[Called, ...]] = field(default_factory=list)
    hints: int = 0
    is_spoken_since: bool = False


def read_guide(
    run: Run, rules: ToolRules, available: Sequence[str], before: int | None = None
) -> Guide:
    """Return how things stand now, or stood before the row of that sequence."""
    turn = _read_turn(run, before)
    return Guide(rules, tuple(available), rules.standing(turn.answers, available), turn.hints)


def has_ended(run: Run, rules: ToolRules, available: Sequence[str]) -> bool:
    """Tell whether the calls of the newest answer, all of which have returned, end the turn.

    Not when a person has said something since, as together with an approval.
    """
    turn = _read_turn(run)
    if not turn.answers or turn.is_spoken_since:
        return False
    *earlier, newest = turn.answers
    return rules.ends(rules.standing(earlier, available), available, newest)


def _read_turn(run: Run, before: int | None = None) -> _Turn:
    began = int(run.request.get(TURN_BEGAN) or run.first_sequence)
    rows = Message.objects.filter(conversation_id=run.conversation_id, sequence__gte=began)
    if before is not None:
        rows = rows.filter(sequence__lt=before)
    turn = _Turn()
    calls: list[dict[str, Any]] = []
    returns: dict[str, Message] = {}
    for row in rows.order_by("sequence").only(
        "role", "otid", "text", "status", "tool_calls", "tool_call_id"
    ):
        if row.role == Message.Role.ASSISTANT and not row.is_said:
            _close(turn, calls, returns)
            calls, returns, turn.is_spoken_since = row.tool_calls, {}, False
        elif row.role == Message.Role.TOOL:
            returns.setdefault(row.tool_call_id, row)
        elif row.is_said:
            turn.is_spoken_since = True
        turn.hints += row.role == Message.Role.SYSTEM and row.text.startswith(HINT_MARK)
    _close(turn, calls, returns)
    return turn


def _close(turn: _Turn, calls: list[dict[str, Any]], returns: dict[str, Message]) -> None:
    if calls:
        turn.answers.append(tuple(_called(call, returns.get(call["id"])) for call in calls))


def _called(call: dict[str, Any], row: Message | None) -> Called:
    return Called(call["name"], _outcome(row), row.text if row else "")


def _outcome(row: Message | None) -> Outcome:
    if row is None:
        return "error"
    if row.status == "success":
        return "success"
    return "denied" if row.text.startswith(denial_text(None)) else "error"
