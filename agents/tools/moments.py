"""Dates and times as models write them in tool calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agents.tools.base import ToolError


def read_moment(given: str, name: str, *, is_end: bool = False) -> datetime:
    """Read a date or a time; a bare end date includes its whole day, a time its whole minute.

    Raises ToolError, which says what argument `name` should look like.
    """
    try:
        parsed = datetime.fromisoformat(given)
        parsed = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
        if not is_end:
            return parsed
        return parsed + (
            timedelta(minutes=1) if "T" in given or " " in given else timedelta(days=1)
        )
    except (ValueError, OverflowError):
        raise ToolError(
            f"{name} {given!r} is not a date like 2026-11-30 or a time like 2026-11-30T09:00."
        ) from None
