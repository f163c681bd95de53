"""Base tools of Letta whose work this server does otherwise, or not yet. Each says so to the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.tools.base import (
    BUILTIN,
    CORE,
    BuiltinTool,
    ToolContext,
    ToolError,
    schema,
    text,
)

MEMORY, VOICE = "letta_memory_core", "letta_voice_sleeptime_core"
ANSWER = "Nothing was sent: write your answer as plain text, it goes to the person directly."
CODE = (
    "Running code is not available: it needs the tool sandbox, which this server does not have yet."
)
EDIT = "This form of editing is not available here. Use memory_insert, memory_replace or memory_rethink."
SLEEP = "This server has no voice agents. Use memory_insert, memory_replace or conversation_search."


def _refusing(reason: str) -> Callable[..., str]:
    def run(context: ToolContext, **arguments: Any) -> str:
        raise ToolError(reason)

    return run


def _tool(name: str, kind: str, reason: str, does: str, **arguments: str) -> BuiltinTool:
    """Return a tool that refuses; `arguments` are required texts with what they mean."""
    return BuiltinTool(
        name=name,
        description=does,
        parameters=schema(tuple(arguments), **{key: text(told) for key, told in arguments.items()}),
        run=_refusing(reason),
        tool_type=kind,
        idempotent=True,
    )


_CODE = "The code to run."
_MESSAGE = "The message to send."
TOOLS = (
    _tool("send_message", CORE, ANSWER, "Send a message to the person.", message=_MESSAGE),
    _tool("memory", MEMORY, EDIT, "Manage memory blocks by command.", command="The command."),
    _tool(
        "memory_apply_patch",
        MEMORY,
        EDIT,
        "Apply a patch to a memory block.",
        label="Label of the block.",
        patch="The patch.",
    ),
    _tool("run_code", BUILTIN, CODE, "Run code.", code=_CODE, language="Its language."),
    _tool("run_code_with_tools", BUILTIN, CODE, "Run code that may call tools.", code=_CODE),
    _tool("store_memories", VOICE, SLEEP, "Keep parts of the conversation."),
    _tool("rethink_user_memory", VOICE, SLEEP, "Rewrite what is known of the person."),
    _tool("finish_rethinking_memory", VOICE, SLEEP, "End the rewriting of memory."),
    _tool("search_memory", VOICE, SLEEP, "Search earlier conversations."),
)
