"""Arguments of a tool call against the tool's schema."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from agents.models import Tool
from agents.tools.base import ToolError

MAX_PROBLEMS = 5


def check_arguments(tool: Tool, arguments: Any) -> dict[str, Any]:
    """Return the arguments. Raises ToolError, which tells the model what is wrong."""
    if not isinstance(arguments, dict):
        raise ToolError(f"The arguments must be a JSON object, not {type(arguments).__name__}.")
    schema = tool.json_schema.get("parameters") or {}
    try:
        problems = [e.message for e in Draft202012Validator(schema).iter_errors(arguments)]
    except SchemaError as exc:
        raise ToolError(f"The schema of {tool.name} is broken: {exc.message}.") from None
    if problems:
        raise ToolError(f"Wrong arguments for {tool.name}: {'; '.join(problems[:MAX_PROBLEMS])}.")
    return arguments
