"""What a built-in tool is, and what its errors mean.

Raise `ToolError` (or any 4xx SouveraineError) and the model sees it; raise anything else and the run fails.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.models import Agent

MEMORY_CORE, CORE, BUILTIN, FILES = (
    "letta_sleeptime_core",
    "letta_core",
    "letta_builtin",
    "letta_files_core",
)


class ToolError(Exception):
    """The call cannot be done; the text goes back to the model."""


@dataclass(frozen=True)
class ToolContext:
    """On whose behalf a tool runs."""

    agent: Agent
    conversation_id: uuid.UUID
    run_id: uuid.UUID | None  # None when a person runs the tool by hand
    isolated: Mapping[str, str] = field(default_factory=dict)  # {label: block} of this conversation


@dataclass(frozen=True)
class BuiltinTool:
    """A built-in tool: `run(context, **arguments) -> str`, called in a worker thread with a deadline.

    `idempotent` says that a call whose outcome a crash has hidden may be made again.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[..., str]
    tool_type: str = CORE
    idempotent: bool = False
    requires_approval: bool = False
    tags: tuple[str, ...] = field(default=())

    @property
    def json_schema(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def schema(required: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    """Return an object schema; `properties` are JSON schemas by argument name."""
    return {"type": "object", "properties": properties, "required": list(required)}


def text(description: str) -> dict[str, Any]:
    """Return a string schema."""
    return {"type": "string", "description": description}


def integer(description: str) -> dict[str, Any]:
    """Return an integer schema."""
    return {"type": "integer", "description": description}
