"""What the generator cannot know: Letta's names of operations, paths and answers, and which errors there are.

`operations.json` has one entry for each operation: Letta's operation id, the schema of its answer, `status` where it
is not 200, `stream` where the answer may be an event stream, an `example` of the body. `schemas.json` holds the
schemas. Both are data from the contract; ours stand among them under names that Letta does not use.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
REFERENCE = "#/components/schemas/"
_FIRST_SENTENCE = re.compile(r"[^.;\n]+")
_PLACE = re.compile(r"\{[^}]+\}")
ERROR = {
    "type": "object",
    "description": "What happened, and what to do next.",
    "properties": {
        "detail": {
            "description": "For people; clients of the old server match some of these texts."
        },
        "error": {"type": "object", "description": "Only when a model provider refused."},
    },
    "anyOf": [{"required": ["detail"]}, {"required": ["error"]}],
}


@functools.cache
def operations() -> dict[str, dict[str, Any]]:
    """Return the operations by `METHOD path`."""
    found: dict[str, dict[str, Any]] = json.loads((FOLDER / "operations.json").read_text("utf-8"))
    return found


@functools.cache
def schemas() -> dict[str, Any]:
    """Return the schemas of answers by name."""
    found: dict[str, Any] = json.loads((FOLDER / "schemas.json").read_text("utf-8"))
    return found


def shape(method: str, path: str) -> str:
    """Return a key that does not depend on a trailing slash or on the names of places."""
    return f"{method.upper()} {_PLACE.sub('{}', path.rstrip('/'))}"


@functools.cache
def _by_shape() -> dict[str, str]:
    return {shape(*key.split(" ", 1)): key for key in operations()}


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Give the generated description Letta's names and answers (a postprocessing hook of drf-spectacular)."""
    _rename_inputs(result)
    paths: dict[str, Any] = {}
    for path, found in result["paths"].items():
        for method, operation in found.items():
            key = _by_shape().get(shape(method, path))
            canonical = path if key is None else key.split(" ", 1)[1]
            if key is not None:
                _describe(operation, operations()[key])
            operation["tags"] = [canonical.split("/")[2]]
            _rename_places(operation, path, canonical)
            summary = _FIRST_SENTENCE.match(operation.get("description", ""))
            operation["summary"] = summary[0] if summary else operation["operationId"]
            operation["responses"]["4XX"] = _content({"$ref": REFERENCE + "Error"}, "Refused.")
            paths.setdefault(canonical, {})[method] = operation
    result["paths"] = dict(sorted(paths.items()))
    result["components"]["schemas"] |= {**schemas(), "Error": ERROR}
    return result


def _rename_inputs(result: dict[str, Any]) -> None:
    """Add `Input` to the names of bodies that the contract has answers for: here a body may hold less."""
    generated = result["components"]["schemas"]
    taken = {name: f"{name}Input" for name in generated if name in schemas()}
    _rename_references(result, {REFERENCE + old: REFERENCE + new for old, new in taken.items()})
    result["components"]["schemas"] = {
        taken.get(name, name): schema for name, schema in generated.items()
    }


def _rename_references(node: Any, names: dict[str, str]) -> None:
    if isinstance(node, dict):
        reference = node.get("$ref")
        if reference in names:
            node["$ref"] = names[reference]
        node = node.values()
    elif not isinstance(node, list):
        return
    for inner in node:
        _rename_references(inner, names)


def _describe(operation: dict[str, Any], known: dict[str, Any]) -> None:
    operation["operationId"] = known["id"]
    answer = (
        _content(known["answer"], "Done.", is_stream=known.get("stream", False))
        if "answer" in known
        else {"description": "Done; no body."}
    )
    operation["responses"] = {str(known.get("status", 200)): answer}
    if "example" in known and "requestBody" in operation:
        for body in operation["requestBody"]["content"].values():
            body["example"] = known["example"]


def _content(schema: Any, description: str, *, is_stream: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if is_stream:
        content["text/event-stream"] = {"schema": {}}
    return {"description": description, "content": content}


def _rename_places(operation: dict[str, Any], path: str, canonical: str) -> None:
    names = dict(zip(_PLACE.findall(path), _PLACE.findall(canonical), strict=True))
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            parameter["name"] = names[f"{{{parameter['name']}}}"].strip("{}")
