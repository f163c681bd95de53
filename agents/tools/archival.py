"""Archival memory tools with Letta's names: texts that are kept for good and found by search."""

from __future__ import annotations

from typing import Any

from agents.actor import KEYLESS_SCOPES, Actor
from agents.archive_selectors import (
    FoundPassage,
    PassageQuery,
    archives_of_agent,
    search_passages,
)
from agents.services.archives import NewPassage, archive_for_insert, insert_passages
from agents.tools.base import CORE, BuiltinTool, ToolContext, ToolError, integer, schema, text
from agents.tools.moments import read_moment

MAX_RESULTS = 50
DEFAULT_RESULTS = 10
MAX_TAG_CHARS = 255
MATCH_MODES = ("any", "all")


def archival_memory_insert(
    context: ToolContext, content: str, tags: list[str] | None = None
) -> str:
    """Keep a text in the agent's archive; returns its id."""
    if not content.strip():
        raise ToolError("content is empty. Give the text that should be kept.")
    if any(len(tag) > MAX_TAG_CHARS for tag in tags or ()):
        raise ToolError(f"A tag may have at most {MAX_TAG_CHARS} characters.")
    actor = Actor(context.agent.owner, KEYLESS_SCOPES)
    archive = archive_for_insert(actor, context.agent)
    [passage] = insert_passages(actor, archive, [NewPassage(content, tags)])
    return f"Memory inserted (passage-{passage.id})."


def archival_memory_search(
    context: ToolContext,
    query: str,
    tags: list[str] | None = None,
    tag_match_mode: str = "any",
    top_k: int = DEFAULT_RESULTS,
    start_datetime: str | None = None,
    end_datetime: str | None = None,
) -> str:
    """Search what is attached to the agent; returns one entry each, best first."""
    if not 1 <= top_k <= MAX_RESULTS:
        raise ToolError(f"top_k must be between 1 and {MAX_RESULTS}.")
    if tag_match_mode not in MATCH_MODES:
        raise ToolError(f"tag_match_mode must be one of {list(MATCH_MODES)}.")
    wanted = PassageQuery(
        query=query,
        tags=tags or (),
        needs_all_tags=tag_match_mode == "all",
        since=read_moment(start_datetime, "start_datetime") if start_datetime else None,
        until=read_moment(end_datetime, "end_datetime", is_end=True) if end_datetime else None,
        limit=top_k,
    )
    found = search_passages(archives_of_agent(context.agent), wanted)
    return "\n".join(_entry(f) for f in found) or "Nothing was found in archival memory."


def _entry(found: FoundPassage) -> str:
    passage = found.passage
    tags = f" (tags: {', '.join(passage.tags)})" if passage.tags else ""
    return f"[{passage.created_at:%Y-%m-%d %H:%M} UTC]{tags} {passage.text}"


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


TOOLS = (
    BuiltinTool(
        name="archival_memory_insert",
        description=(
            "Keep a text in your archival memory: facts, decisions and details for which your memory blocks have "
            "no room. Write it so that it can be understood on its own."
        ),
        parameters=schema(
            ("content",),
            content=text("The text to keep."),
            tags=_texts("Words to file it under, for later searches."),
        ),
        run=archival_memory_insert,
        tool_type=CORE,
    ),
    BuiltinTool(
        name="archival_memory_search",
        description=(
            "Search your archival memory, also by a question in plain words. Dates are inclusive; with an empty "
            "query the newest entries are returned."
        ),
        parameters=schema(
            ("query",),
            query=text("What to search for."),
            tags=_texts("Only entries with these tags."),
            tag_match_mode={
                "type": "string",
                "enum": list(MATCH_MODES),
                "description": "Whether an entry needs any (the default) or all of the tags.",
            },
            top_k=integer(f"Most results, 1 to {MAX_RESULTS} (default {DEFAULT_RESULTS})."),
            start_datetime=text("Earliest date or time, like 2026-11-30 or 2026-11-30T09:00."),
            end_datetime=text("Latest date or time, inclusive."),
        ),
        run=archival_memory_search,
        tool_type=CORE,
        idempotent=True,
    ),
)
