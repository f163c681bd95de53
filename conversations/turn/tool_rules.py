"""What the agent's tool rules say at a point of the turn. Pure: calls so far in, verdicts out.

The calls come from the rows of the turn (`turn.guide`), so a crash, or a pause for an approval, changes
nothing. All calls of one answer are judged by what the model was offered when it gave that answer.
`requires_approval` is no matter of this module: see `agents.services.approvals`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["success", "error", "denied"]
Rule = Mapping[str, Any]
CHILD, PARENT, CONDITIONAL = "constrain_child_tools", "parent_last_tool", "conditional"
FIRST, EXIT, CONTINUE = "run_first", "exit_loop", "continue_loop"
MAX_COUNT, REQUIRED = "max_count_per_step", "required_before_exit"
# The fields without which a rule of the type means nothing.
NEEDED: dict[str, tuple[str, type]] = {
    CHILD: ("children", list),
    PARENT: ("children", list),
    CONDITIONAL: ("child_output_mapping", dict),
    MAX_COUNT: ("max_count_limit", int),
}
TYPES = (FIRST, EXIT, CONTINUE, CHILD, PARENT, CONDITIONAL, MAX_COUNT, REQUIRED)


@dataclass(frozen=True)
class Called:
    """One call of an answer, and what became of it. A call without a return counts as an error."""

    name: str
    outcome: Outcome = "success"
    text: str = ""


@dataclass(frozen=True)
class Standing:
    """What the rules need to know of the calls so far; forbidden ones are not among them.

    `tried` were called, even if they failed or were denied; `counts` are of calls that ran; `last` is the
    last one that succeeded: a failed call can be made again.
    """

    tried: frozenset[str] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)
    last: Called | None = None


class ToolRules:
    """The rules of an agent that have a say in its turns."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._by_type: dict[str, list[Rule]] = {kind: [] for kind in TYPES}
        for rule in rules:
            self._by_type[str(rule["type"])].append(rule)

    @classmethod
    def of(cls, rules: Iterable[Any] | None) -> ToolRules | None:
        """Read stored rules; None when none of them matters here. Broken ones are left out."""
        usable = [rule for rule in rules or () if _is_usable(rule)]
        return cls(usable) if usable else None

    def standing(self, answers: Iterable[Sequence[Called]], available: Sequence[str]) -> Standing:
        """Return where the turn stands after these answers, oldest first."""
        standing = Standing()
        for calls in answers:
            verdicts = self.permitted(standing, available, [call.name for call in calls])
            made = [call for call, is_allowed in zip(calls, verdicts, strict=True) if is_allowed]
            ran = Counter(call.name for call in made if call.outcome != "denied")
            succeeded = [call for call in made if call.outcome == "success"]
            standing = Standing(
                standing.tried | {call.name for call in made},
                Counter(standing.counts) + ran,
                succeeded[-1] if succeeded else standing.last,
            )
        return standing

    def offered(self, standing: Standing, available: Sequence[str]) -> list[str]:
        """Return which of the available tools may be called now, in their order; none is possible."""
        first = self._first(standing, available)
        if first:
            return first
        allowed = [name for name in available if self._fits(standing, name)]
        if not self._uncalled(standing, available):
            return allowed
        others = [name for name in allowed if name not in self._names(EXIT)]
        return others or allowed

    def permitted(
        self, standing: Standing, available: Sequence[str], names: Sequence[str]
    ) -> list[bool]:
        """Return for each call of one answer whether it may be made."""
        offered = set(self.offered(standing, available))
        counts, limits = Counter(standing.counts), self._limits()
        verdicts = []
        for name in names:
            is_allowed = name in offered and counts[name] < limits.get(name, counts[name] + 1)
            counts[name] += is_allowed
            verdicts.append(is_allowed)
        return verdicts

    def prefilled(self, standing: Standing, available: Sequence[str], name: str) -> dict[str, Any]:
        """Return the arguments that the rules set for a call made now, whatever the model says."""
        found: dict[str, Any] = {}
        if self._first(standing, available):
            for rule in self._by_type[FIRST]:
                if rule["tool_name"] == name:
                    found |= rule.get("args") or {}
        for rule in self._after_last(CHILD, standing):
            for node in rule.get("child_arg_nodes") or ():
                if node.get("name") == name:
                    found |= node.get("args") or {}
        return found

    def ends(self, standing: Standing, available: Sequence[str], calls: Sequence[Called]) -> bool:
        """Tell whether these calls, made at `standing`, end the turn.

        A call that failed does not: the model may mend it.
        """
        verdicts = self.permitted(standing, available, [call.name for call in calls])
        done = {
            call.name
            for call, is_allowed in zip(calls, verdicts, strict=True)
            if is_allowed and call.outcome == "success"
        }
        if not done & self._names(EXIT) or done & self._names(CONTINUE):
            return False
        tried = standing.tried | {
            call.name for call, allowed in zip(calls, verdicts, strict=True) if allowed
        }
        return not self._uncalled(Standing(tried), available)

    def owed(self, standing: Standing, available: Sequence[str]) -> list[str]:
        """Return the tools of which one has to be called before the turn may end without a call."""
        first = self._first(standing, available)
        if first:
            return first
        offered = self.offered(standing, available)
        if self._after_last(CHILD, standing) or self._next_by_output(standing) is not None:
            return offered
        return [name for name in self._uncalled(standing, available) if name in offered]

    def reason(self, standing: Standing, available: Sequence[str], name: str) -> str:
        """Tell a model which rule forbids the call; "" when it is not a rule that does."""
        if name not in available:
            return ""
        first = self._first(standing, available)
        if first and name not in first:
            return f"The first call of a turn must be of {_either(first)}."
        if standing.counts.get(name, 0) >= self._limits().get(
            name, standing.counts.get(name, 0) + 1
        ):
            return f"{name} may be called {self._limits()[name]} times in a turn."
        parents = sorted({r["tool_name"] for r in self._by_type[PARENT] if name in r["children"]})
        last = standing.last.name if standing.last else ""
        if parents and last not in parents:
            return f"{name} can only be called right after {_either(parents)}."
        if not self._fits(standing, name):
            return f"After {last} only other tools may be called."
        uncalled = self._uncalled(standing, available)
        if name in self._names(EXIT) and uncalled:
            return f"Before {name} ends the turn, {_all(uncalled)} must be called."
        limit = self._limits().get(name)
        return f"{name} may be called {limit} times in a turn." if limit is not None else ""

    def _names(self, kind: str) -> set[str]:
        return {str(rule["tool_name"]) for rule in self._by_type[kind]}

    def _first(self, standing: Standing, available: Sequence[str]) -> list[str]:
        """Return the tools one of which must be the first call, while none has been made."""
        names = self._names(FIRST)
        return [] if standing.tried else [name for name in available if name in names]

    def _uncalled(self, standing: Standing, available: Sequence[str]) -> list[str]:
        """Return the required tools not tried yet; one that the agent has not is not waited for."""
        required = self._names(REQUIRED)
        return [name for name in available if name in required and name not in standing.tried]

    def _limits(self) -> dict[str, int]:
        limits: dict[str, int] = {}
        for rule in self._by_type[MAX_COUNT]:
            name = str(rule["tool_name"])
            limits[name] = min(limits.get(name, rule["max_count_limit"]), rule["max_count_limit"])
        return limits

    def _after_last(self, kind: str, standing: Standing) -> list[Rule]:
        if standing.last is None:
            return []
        return [r for r in self._by_type[kind] if r["tool_name"] == standing.last.name]

    def _next_by_output(self, standing: Standing) -> set[str] | None:
        """Return which tools the last output leads to; None when it leads nowhere in particular."""
        found: set[str] | None = None
        for rule in self._after_last(CONDITIONAL, standing):
            assert standing.last is not None
            target = _mapped(rule, standing.last.text)
            if target is not None:
                found = target if found is None else found & target
        return found

    def _fits(self, standing: Standing, name: str) -> bool:
        """Tell whether child, parent, conditional and count rules allow the tool now."""
        if any(name not in rule["children"] for rule in self._after_last(CHILD, standing)):
            return False
        by_output = self._next_by_output(standing)
        if by_output is not None and name not in by_output:
            return False
        parents = {r["tool_name"] for r in self._by_type[PARENT] if name in r["children"]}
        if parents and (standing.last is None or standing.last.name not in parents):
            return False
        limit = self._limits().get(name)
        return limit is None or standing.counts.get(name, 0) < limit


def _is_usable(rule: Any) -> bool:
    if not isinstance(rule, Mapping) or rule.get("type") not in TYPES or not rule.get("tool_name"):
        return False
    name, kind = NEEDED.get(str(rule["type"]), ("tool_name", str))
    return isinstance(rule.get(name), kind)


def _mapped(rule: Rule, output: str) -> set[str] | None:
    for key, target in rule["child_output_mapping"].items():
        if _matches(output.strip(), str(key).strip()):
            return {str(target)}
    if rule.get("require_output_mapping"):
        return set()
    return {str(rule["default_child"])} if rule.get("default_child") else None


def _matches(output: str, key: str) -> bool:
    """Compare as text, as JSON text, as a truth value or as a number: keys of JSON are always text."""
    if output == key or {output.lower(), key.lower()} in ({"true"}, {"false"}):
        return True
    try:
        return bool(json.loads(output) == key) or float(output) == float(key)
    except (ValueError, RecursionError, OverflowError):
        return False


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)


def _all(names: Sequence[str]) -> str:
    return " and ".join(names)
