"""What an answer looks like without its accidental values, and how two such looks differ.

A look is JSON: text stands for a type ("str", "int", "float", "bool", "null"), "@agent1" for an id
that later requests name, {"=": x} for a value that is fixed, {"any": true} for what is not compared,
a list for the looks of its elements in order, an object for keys in their order.
"""

from __future__ import annotations

import re
from typing import Any

FIXED_KEYS = frozenset(
    [
        "message_type",
        "stop_reason",
        "error_type",
        "role",
        "order",
        "agent_type",
        "label",
        "type",
        "status",
        "provider_type",
        "provider_category",
        "run_type",
        "step_count",
        "is_deleted",
        "model_type",
    ]
)
FREE_KEYS = frozenset(
    [
        "json_schema",
        "args_json_schema",
        "source_code",
        "embedding_config",
        "compaction_settings",
        "reasoning",
        "completion_tokens_details",
        "prompt_tokens_details",
    ]
)
ID = re.compile(
    r"^(agent|block|conv|message|run|step|tool)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
)
NAMED = ("label", "handle")


def type_of(value: Any) -> str:
    """Return the JSON type's name; 1.0 and 1 differ."""
    if value is None:
        return "null"
    names = {bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict"}
    return names[type(value)]


class Looks:
    """Takes the looks of recorded answers; gives each id that a request names a short name."""

    def __init__(self, named_ids: dict[str, str]) -> None:
        self.named_ids = named_ids

    def of(self, value: Any, key: str = "") -> Any:
        """Return the look of `value`, which stood under `key`."""
        if key in FREE_KEYS and value is not None:
            return {"any": True}
        if isinstance(value, dict):
            return {name: self.of(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.of(inner, "") for inner in value]
        if isinstance(value, str) and value in self.named_ids:
            return self.named_ids[value]
        if key in FIXED_KEYS and value is not None:
            return {"=": value}
        return type_of(value)


def is_leaf(look: Any) -> bool:
    return isinstance(look, str) or (isinstance(look, dict) and ("=" in look or "any" in look))


def compare(look: Any, got: Any, where: str, bound: dict[str, str]) -> list[str]:
    """Return how `got` differs from `look`; binds "@names" to the ids found on the way."""
    if isinstance(look, str) and look.startswith("@"):
        if not isinstance(got, str) or not ID.match(got):
            return [f"{where}: an id was expected, not {got!r}"]
        bound.setdefault(look, got)
        return []
    if isinstance(look, str):
        return [] if type_of(got) == look else [f"{where}: {look} was expected, not {got!r:.80}"]
    if isinstance(look, list):
        return _compare_lists(look, got, where, bound)
    if "any" in look:
        return [f"{where}: is null"] if got is None else []
    if "=" in look:
        return [] if got == look["="] else [f"{where}: {look['=']!r} was expected, not {got!r:.80}"]
    return _compare_objects(look, got, where, bound)


def _compare_objects(
    look: dict[str, Any], got: Any, where: str, bound: dict[str, str]
) -> list[str]:
    if not isinstance(got, dict):
        return [f"{where}: an object was expected, not {got!r:.80}"]
    found = []
    if [key for key in got if key in look] != [key for key in look if key in got]:
        found.append(f"{where}: the keys are in another order: {list(got)}")
    for key, inner in look.items():
        if key in got:
            found += compare(inner, got[key], f"{where}.{key}", bound)
        else:
            found.append(f"{where}.{key}: is missing")
    return found


def _name_of(look: Any, got: bool = False) -> Any:
    for key in NAMED:
        if isinstance(look, dict) and key in look:
            return look[key] if got else look[key].get("=") if isinstance(look[key], dict) else None
    return None


def _compare_lists(look: list[Any], got: Any, where: str, bound: dict[str, str]) -> list[str]:
    if not isinstance(got, list):
        return [f"{where}: a list was expected, not {got!r:.80}"]
    if look and not got:
        return [f"{where}: the list is empty"]
    by_name = {_name_of(item, got=True): item for item in got}
    found = []
    for index, inner in enumerate(look):
        name = _name_of(inner)
        if name is not None and name in by_name:
            found += compare(inner, by_name[name], f"{where}[{name}]", bound)
        elif index < len(got):
            found += compare(inner, got[index], f"{where}[{index}]", bound)
    return found


def merged(frames: list[Any]) -> list[Any]:
    """Leave one frame of each row of frames of the same type: how an answer is cut up is no contract."""
    kept: list[Any] = []
    for frame in frames:
        kind = frame.get("message_type") if isinstance(frame, dict) else frame
        before = kept[-1].get("message_type") if kept and isinstance(kept[-1], dict) else None
        if kind != before or not isinstance(frame, dict):
            kept.append(frame)
    return kept
