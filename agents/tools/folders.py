"""Letta's tools for files of attached folders: open some of them, search them by a pattern or by meaning."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.db.models import QuerySet

from agents.archive_selectors import PassageQuery, search_passages
from agents.files import grep
from agents.folder_selectors import archives_of_folders, files_of_agent
from agents.models import Agent, AgentFile, FileContent
from agents.services.open_files import Opening, file_label, note_access, open_files
from agents.tools.base import FILES, BuiltinTool, ToolContext, ToolError, integer, schema, text

MATCHES_PER_PAGE = 20
MAX_CONTEXT_LINES = 20
MAX_RESULTS = 20
DEFAULT_RESULTS = 5
MAX_OFFSET = 100_000
NAMES_SHOWN = 20


def _row_of(agent: Agent, name: str) -> AgentFile:
    """Return the agent's file of that name, `folder/name` or, if there is only one, the name alone."""
    rows = files_of_agent(agent)
    folder, _, rest = name.partition("/")
    found = list(rows.filter(file__folder__name=folder, file__name=rest)[:1]) if rest else []
    found = found or list(rows.filter(file__name=name)[:2])
    if len(found) == 1:
        return found[0]
    if found:
        raise ToolError(
            f"Several folders have a file {name!r}. Name it with its folder: folder/name."
        )
    known = [file_label(row.file) for row in rows.order_by("file__name", "pk")[:NAMES_SHOWN]]
    listed = f"Your files are, among others: {', '.join(known)}." if known else "You have no files."
    raise ToolError(f"There is no file {name!r}. {listed}")


def open_files_tool(
    context: ToolContext, file_requests: list[dict[str, Any]], close_all_others: bool = False
) -> str:
    """Open files, so that they are in view from the next step on."""
    if not file_requests:
        raise ToolError("file_requests is empty. Name at least one file.")
    openings: dict[uuid.UUID, Opening] = {}
    for request in file_requests:
        row = _row_of(context.agent, request["file_name"])
        offset, length = request.get("offset") or 0, request.get("length")
        if offset < 0 or (length is not None and length < 1):
            raise ToolError("offset must be 0 or more and length 1 or more.")
        openings[row.file_id] = Opening(row.file_id, offset, length)
    opened, closed = open_files(
        context.agent, list(openings.values()), closes_others=close_all_others
    )
    names = ", ".join(f"{file_label(r.file)} (lines {r.start_line}-{r.end_line})" for r in opened)
    gone = f" Closed: {', '.join(closed)}." if closed else ""
    return f"Opened: {names}.{gone} Opened files are in view in your <directories>."


def grep_files(
    context: ToolContext,
    pattern: str,
    include: str | None = None,
    context_lines: int = 1,
    offset: int = 0,
) -> str:
    """Search all files for a regular expression; returns a page of matching lines."""
    if not 0 <= context_lines <= MAX_CONTEXT_LINES:
        raise ToolError(f"context_lines must be between 0 and {MAX_CONTEXT_LINES}.")
    if not 0 <= offset <= MAX_OFFSET:
        raise ToolError(f"offset must be between 0 and {MAX_OFFSET}.")
    rows = files_of_agent(context.agent).order_by("file__folder__name", "file__name", "pk")
    try:
        found = grep.matches(_texts(rows, include), pattern, context_lines)
        page = list(islice(found, offset, offset + MATCHES_PER_PAGE + 1))
    except grep.BadPattern as exc:
        raise ToolError(str(exc)) from None
    except grep.TookTooLong:
        raise ToolError(
            "The search took too long. Narrow it with `include`, for example '*.md'."
        ) from None
    if not page:
        return f"No matches for {pattern!r}." if not offset else "There are no more matches."
    shown = page[:MATCHES_PER_PAGE]
    ids_by_label = {file_label(r.file): r.file_id for r in rows}
    note_access(context.agent, [ids_by_label[match.name] for match in shown])
    text_ = "\n\n".join(_match_text(match) for match in shown)
    more = f"\n\n[More matches: call again with offset={offset + MATCHES_PER_PAGE}]"
    return text_ + (more if len(page) > MATCHES_PER_PAGE else "")


def _texts(rows: QuerySet[AgentFile], include: str | None) -> Iterator[tuple[str, str]]:
    """Give (name, text) of the agent's files, one text in memory at a time."""
    for row in rows:
        label = file_label(row.file)
        if not grep.is_included(label, include):
            continue
        content = FileContent.objects.filter(file=row.file_id).values_list("text", flat=True)
        yield label, content.first() or ""


def _match_text(match: grep.Match) -> str:
    lines = [f"{'>' if is_it else ' '} {number}: {line}" for number, line, is_it in match.around]
    return f"{match.name}:{match.line}\n" + "\n".join(lines)


def semantic_search_files(context: ToolContext, query: str, limit: int = DEFAULT_RESULTS) -> str:
    """Search the passages of all files; returns the best ones."""
    if not 1 <= limit <= MAX_RESULTS:
        raise ToolError(f"limit must be between 1 and {MAX_RESULTS}.")
    if not query.strip():
        raise ToolError("query is empty. Say what to look for.")
    archives = archives_of_folders(context.agent)
    if not archives:
        raise ToolError("No folder is attached to you, so there are no files to search.")
    found = search_passages(archives, PassageQuery(query=query, limit=limit))
    passages = [f.passage for f in found if f.passage.file is not None]
    if not passages:
        return "Nothing was found in your files."
    note_access(context.agent, [p.file_id for p in passages if p.file_id])
    return "\n\n".join(f"[{file_label(p.file)}]\n{p.text}" for p in passages if p.file)


_REQUESTS: dict[str, Any] = {
    "type": "array",
    "description": "The files to open.",
    "items": schema(
        ("file_name",),
        file_name=text("The file, as it is listed: folder/name."),
        offset=integer("Lines to leave out at the start (default 0)."),
        length=integer("How many lines to show (default: as many as fit)."),
    ),
}
TOOLS = (
    BuiltinTool(
        name="open_files",
        description=(
            "Open files of your folders, whole or from a line on, so that you see them. When too many are open, "
            "those that you have not looked at for longest are closed."
        ),
        parameters=schema(
            ("file_requests",),
            file_requests=_REQUESTS,
            close_all_others={
                "type": "boolean",
                "description": "Whether to close all other files first (default false).",
            },
        ),
        run=open_files_tool,
        tool_type=FILES,
        idempotent=True,
    ),
    BuiltinTool(
        name="grep_files",
        description=(
            "Search all of your files, also closed ones, for a regular expression, line by line; upper and lower "
            f"case are the same. Returns {MATCHES_PER_PAGE} matches at a time."
        ),
        parameters=schema(
            ("pattern",),
            pattern=text("The regular expression (RE2: no look-around, no back-references)."),
            include=text("Only files whose name matches this, for example '*.md'."),
            context_lines=integer("Lines to show around each match (default 1)."),
            offset=integer("How many matches to leave out, for the next page (default 0)."),
        ),
        run=grep_files,
        tool_type=FILES,
        idempotent=True,
    ),
    BuiltinTool(
        name="semantic_search_files",
        description="Search your files by a question or by words; returns the passages that fit best.",
        parameters=schema(
            ("query",),
            query=text("What to search for."),
            limit=integer(f"Most results, 1 to {MAX_RESULTS} (default {DEFAULT_RESULTS})."),
        ),
        run=semantic_search_files,
        tool_type=FILES,
        idempotent=True,
    ),
)
