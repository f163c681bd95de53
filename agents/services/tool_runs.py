"""Running a tool because a person asks for it, outside of any turn."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from agents.models import Agent, Tool
from agents.tools import registry
from agents.tools.arguments import check_arguments
from agents.tools.base import ToolContext, ToolError
from souveraine.errors import InvalidArgument, SouveraineError

NOT_HERE = (
    "{name} is custom code, which this server cannot run yet: it needs the tool sandbox. Its schema is fine. Until "
    "then send it as one of the request's client_tools and run it at the client."
)


@dataclass(frozen=True)
class Result:
    """What a run gave; `is_error` when the tool refused."""

    text: str
    is_error: bool = False


def run_tool(
    agent: Agent, conversation_id: uuid.UUID, tool: Tool, arguments: dict[str, Any]
) -> Result:
    """Run an attached built-in tool on the agent's behalf. Raises InvalidArgument for custom code."""
    builtin = registry.find(tool.name) if tool.owner_id is None else None
    if builtin is None:
        raise InvalidArgument(NOT_HERE.format(name=tool.name))
    try:
        checked = check_arguments(tool, arguments)
        text = builtin.run(ToolContext(agent, conversation_id, None), **checked)
    except ToolError as exc:
        return Result(str(exc), is_error=True)
    except SouveraineError as exc:
        if exc.http_status >= 500:
            raise
        return Result(exc.message, is_error=True)
    return Result(text)
