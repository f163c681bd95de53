"""Memory tools with Letta's names. Each edit is one commit by the agent; limits and read_only hold."""

from __future__ import annotations

from collections.abc import Callable

from agents.services.blocks import edit_by_agent
from agents.tools.base import (
    MEMORY_CORE,
    BuiltinTool,
    ToolContext,
    ToolError,
    integer,
    schema,
    text,
)
from memfs import agent_author


def _edit(context: ToolContext, label: str, change: Callable[[str], str]) -> str:
    author = agent_author(f"agent-{context.agent.pk}")
    return edit_by_agent(context.agent, label, change, author, context.isolated)


def memory_insert(context: ToolContext, label: str, new_string: str, insert_line: int = -1) -> str:
    """Insert text behind a line of a block (0 = at the start, -1 = at the end); returns the new value."""

    def change(value: str) -> str:
        lines = value.split("\n") if value else []
        if insert_line < -1 or insert_line > len(lines):
            raise ToolError(
                f"insert_line {insert_line} is outside of the block; it has {len(lines)} lines (0 to {len(lines)})."
            )
        at = len(lines) if insert_line == -1 else insert_line
        return "\n".join([*lines[:at], *new_string.split("\n"), *lines[at:]])

    return _edit(context, label, change)


def memory_replace(context: ToolContext, label: str, old_string: str, new_string: str) -> str:
    """Replace text that occurs exactly once in a block; returns the new value."""

    def change(value: str) -> str:
        count = value.count(old_string) if old_string else 0
        if count == 0:
            raise ToolError(
                f"old_string was not found in block '{label}'. It must match exactly, without line numbers."
            )
        if count > 1:
            raise ToolError(
                f"old_string occurs {count} times in block '{label}'. Give more of its surroundings."
            )
        return value.replace(old_string, new_string)

    return _edit(context, label, change)


def core_memory_append(context: ToolContext, label: str, content: str) -> str:
    """Add a line at the end of a block; returns the new value."""
    return memory_insert(context, label, content)


def core_memory_replace(
    context: ToolContext, label: str, old_content: str, new_content: str
) -> str:
    """Replace text that occurs exactly once in a block; returns the new value."""
    return memory_replace(context, label, old_content, new_content)


def memory_rethink(context: ToolContext, label: str, new_memory: str) -> str:
    """Replace the whole value of a block; returns it."""
    return _edit(context, label, lambda value: new_memory)


def memory_finish_edits(context: ToolContext) -> str:
    """Tell that nothing is left to do: each edit is kept when it is made."""
    return "All edits are kept."


LEGACY_CORE = "letta_memory_core"
TOOLS = (
    BuiltinTool(
        name="core_memory_append",
        description="Add text at the end of one of your memory blocks.",
        parameters=schema(
            ("label", "content"), label=text("Label of the block."), content=text("What to add.")
        ),
        run=core_memory_append,
        tool_type=LEGACY_CORE,
    ),
    BuiltinTool(
        name="core_memory_replace",
        description="Replace text that occurs exactly once in one of your memory blocks.",
        parameters=schema(
            ("label", "old_content", "new_content"),
            label=text("Label of the block."),
            old_content=text("The text to replace, exactly as it stands in the block."),
            new_content=text("The text to put in its place."),
        ),
        run=core_memory_replace,
        tool_type=LEGACY_CORE,
    ),
    BuiltinTool(
        name="memory_rethink",
        description="Rewrite one of your memory blocks as a whole, for large changes.",
        parameters=schema(
            ("label", "new_memory"),
            label=text("Label of the block."),
            new_memory=text("The whole new value."),
        ),
        run=memory_rethink,
        tool_type=MEMORY_CORE,
        idempotent=True,
    ),
    BuiltinTool(
        name="memory_finish_edits",
        description="Tell that you have finished editing your memory.",
        parameters=schema(),
        run=memory_finish_edits,
        tool_type=MEMORY_CORE,
        idempotent=True,
    ),
    BuiltinTool(
        name="memory_insert",
        description=(
            "Insert text into one of your memory blocks. Use it to remember something new. "
            "Without insert_line the text is added at the end."
        ),
        parameters=schema(
            ("label", "new_string"),
            label=text("Label of the memory block to edit, for example 'human'."),
            new_string=text("The text to insert, without line number prefixes."),
            insert_line=integer(
                "Line behind which to insert: 0 is the start, -1 (the default) the end."
            ),
        ),
        run=memory_insert,
        tool_type=MEMORY_CORE,
    ),
    BuiltinTool(
        name="memory_replace",
        description=(
            "Replace a piece of text in one of your memory blocks. old_string must occur exactly once; "
            "an empty new_string removes it."
        ),
        parameters=schema(
            ("label", "old_string", "new_string"),
            label=text("Label of the memory block to edit, for example 'human'."),
            old_string=text("The text to replace, exactly as it stands in the block."),
            new_string=text("The text to put in its place."),
        ),
        run=memory_replace,
        tool_type=MEMORY_CORE,
    ),
)
