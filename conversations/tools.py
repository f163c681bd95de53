"""conversation_search, the built-in tool that belongs to this app. Registered when the app is ready."""

from __future__ import annotations

from agents.tools.base import CORE, BuiltinTool, ToolContext, ToolError, integer, schema, text
from agents.tools.moments import read_moment
from conversations.search import SEARCHED_ROLES, FoundMessage, MessageQuery, Place, search_messages
from conversations.search_signals import ASSISTANT

MAX_RESULTS = 50
SHOWN_CHARS = 1500
ROLES = ("user", "assistant", "tool")


def _line(found: FoundMessage) -> str:
    message = found.message
    is_short = len(message.text) <= SHOWN_CHARS
    shown = (
        message.text if is_short else f"{message.text[:SHOWN_CHARS]}… (match: {found.snippet.text})"
    )
    return f"[{message.created_at:%Y-%m-%d %H:%M} UTC] {message.role}: {shown}"


def conversation_search(
    context: ToolContext,
    query: str = "",
    roles: list[str] | None = None,
    limit: int = 10,
    start_date: str | None = None,
    end_date: str | None = None,
) -> str:
    """Search the agent's past messages; returns one line each, best match first."""
    if not 1 <= limit <= MAX_RESULTS:
        raise ToolError(f"limit must be between 1 and {MAX_RESULTS}.")
    unknown = set(roles or ()) - set(ROLES)
    if unknown:
        raise ToolError(f"Unknown roles {sorted(unknown)}; choose from {list(ROLES)}.")
    wanted = MessageQuery(
        query=query,
        roles=roles or SEARCHED_ROLES,
        since=read_moment(start_date, "start_date") if start_date else None,
        until=read_moment(end_date, "end_date", is_end=True) if end_date else None,
        limit=limit,
        asker=ASSISTANT,
    )
    place = Place(context.agent.owner_id, context.agent.pk)
    return "\n".join(_line(f) for f in search_messages(place, wanted)) or "No messages were found."


CONVERSATION_SEARCH = BuiltinTool(
    name="conversation_search",
    description=(
        "Search your past messages with this person, also those that are no longer in view, by words or a question. "
        'Who said it and a date ("what did the user say about tea in March 2026") are understood. '
        "Dates are inclusive; without a query the newest messages of the time range are returned."
    ),
    parameters=schema(
        query=text("Words to look for, or a question."),
        roles={
            "type": "array",
            "items": {"type": "string", "enum": list(ROLES)},
            "description": "Whose messages to search (default: user and assistant).",
        },
        limit=integer(f"Most results, 1 to {MAX_RESULTS} (default 10)."),
        start_date=text("Earliest date or time, like 2026-11-30 or 2026-11-30T09:00."),
        end_date=text("Latest date or time, inclusive."),
    ),
    run=conversation_search,
    tool_type=CORE,
    idempotent=True,
)
