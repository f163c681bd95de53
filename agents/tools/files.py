"""The seed's file tools, inside the agent's memory; `bash` says what it needs."""

from __future__ import annotations

from dataclasses import replace

from agents.models import AgentBlock
from agents.services.blocks import check_limit
from agents.services.memory import block_file, read_memory_file, repository_of, sync_blocks
from agents.tools.base import BUILTIN, BuiltinTool, ToolContext, ToolError, integer, schema, text
from memfs import agent_author, parse_block_file, path_to_label, render_block_file

DEFAULT_LINES = 2000
MAX_FILE_CHARS = 1_000_000


def read_file(context: ToolContext, path: str, offset: int = 0, limit: int = DEFAULT_LINES) -> str:
    """Return lines `offset`… of a file of the agent's memory, at most `limit` of them."""
    lines = read_memory_file(context.agent, path).splitlines(keepends=True)
    if offset < 0 or limit < 1:
        raise ToolError("offset must be 0 or more and limit 1 or more.")
    shown = "".join(lines[offset : offset + limit])
    left = len(lines) - offset - limit
    return shown + (
        f"\n[{left} more lines; read on with offset={offset + limit}]" if left > 0 else ""
    )


def write_file(context: ToolContext, path: str, content: str) -> str:
    """Create or replace a file of the agent's memory."""
    if len(content) > MAX_FILE_CHARS:
        raise ToolError(
            f"The content has {len(content)} characters; at most {MAX_FILE_CHARS} are allowed."
        )
    content = _guarded_block_file(context, path, content)
    repository_of(context.agent).write(path, content, agent_author(f"agent-{context.agent.pk}"))
    sync_blocks(context.agent)
    return f"Wrote {len(content)} characters to {path}."


def edit_file(context: ToolContext, path: str, old_string: str, new_string: str) -> str:
    """Replace text that occurs exactly once in a file of the agent's memory."""

    def change(current: str | None) -> str:
        count = (current or "").count(old_string) if old_string else 0
        if current is None:
            raise ToolError(f"There is no file {path!r}.")
        if count != 1:
            raise ToolError(
                f"old_string occurs {count} times in {path}; it must occur exactly once."
            )
        changed = current.replace(old_string, new_string)
        return _guarded_block_file(context, path, changed)

    repository_of(context.agent).transform(path, change, agent_author(f"agent-{context.agent.pk}"))
    sync_blocks(context.agent)
    return f"Edited {path}."


def _guarded_block_file(context: ToolContext, path: str, content: str) -> str:
    """Hold a block's limit and read_only also when its file is written; keeps front matter left out."""
    label = path_to_label(path, git_memory=False)
    row = (
        AgentBlock.objects.filter(agent=context.agent, label=label).select_related("block").first()
        if label
        else None
    )
    if row is None:
        return content
    if row.block.read_only:
        raise ToolError(f"{path} is a read-only memory block.")
    file, _ = parse_block_file(path, content)
    if file.read_only:
        raise ToolError("A block's front matter can be made read-only by a person only.")
    check_limit(row.label, file.value, row.block.limit)
    if content.startswith("---\n"):
        return content
    return render_block_file(replace(block_file(row.block), value=content))


def bash(context: ToolContext, command: str, timeout_seconds: int = 60) -> str:
    """Tell that commands need the sandbox."""
    raise ToolError(
        "bash is not available: running commands needs the tool sandbox, which this server does not have yet. "
        "Use read_file, write_file and edit_file for files."
    )


_PATH = text("Path inside your memory, for example 'journal/2026-11-30.md' or 'skills/cooking.md'.")
TOOLS = (
    BuiltinTool(
        name="read_file",
        description="Read a text file of your own memory directory.",
        parameters=schema(
            ("path",),
            path=_PATH,
            offset=integer("First line to return, counted from 0."),
            limit=integer(f"Most lines to return (default {DEFAULT_LINES})."),
        ),
        run=read_file,
        tool_type=BUILTIN,
        idempotent=True,
    ),
    BuiltinTool(
        name="write_file",
        description="Create or replace a text file of your own memory directory. Each write is kept in its history.",
        parameters=schema(("path", "content"), path=_PATH, content=text("The whole new content.")),
        run=write_file,
        tool_type=BUILTIN,
        idempotent=True,
    ),
    BuiltinTool(
        name="edit_file",
        description="Replace a piece of text that occurs exactly once in a file of your own memory directory.",
        parameters=schema(
            ("path", "old_string", "new_string"),
            path=_PATH,
            old_string=text("The text to replace, exactly as it stands in the file."),
            new_string=text("The text to put in its place."),
        ),
        run=edit_file,
        tool_type=BUILTIN,
    ),
    BuiltinTool(
        name="bash",
        description="Run a shell command in your own directory. Needs the sandbox and a person's approval.",
        parameters=schema(
            ("command",),
            command=text("The command."),
            timeout_seconds=integer("Deadline in seconds."),
        ),
        run=bash,
        tool_type=BUILTIN,
    ),
)
