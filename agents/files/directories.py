"""The part of the system prompt that shows an agent its folders and what it has open, in Letta's form."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

from agents.files.view import TRUNCATED
from agents.folder_selectors import (
    files_of_agent,
    folders_of_agent,
    max_files_open,
    open_files_of,
    view_limit_chars,
)
from agents.models import Agent, AgentFile, Folder
from agents.services.open_files import file_label

CLOSED_SHOWN = 100  # names of closed files in one prompt: a large folder must not fill the window
OPEN_SHARE = 0.4  # of the window: folders that somebody attaches must not take the agent its voice
CHARS_PER_TOKEN = 3


def directories_text(agent: Agent) -> str:
    """Return the `<directories>` of an agent; "" without folders, which costs no query."""
    folders = folders_of_agent(agent)
    if not folders:
        return ""
    open_rows = open_files_of(agent)[: max_files_open(agent)]
    closed = files_of_agent(agent).exclude(pk__in=[row.pk for row in open_rows])
    names = list(closed.defer("visible_content").order_by("file__name", "pk")[: CLOSED_SHOWN + 1])
    rows: dict[uuid.UUID, list[AgentFile]] = {folder.pk: [] for folder in folders}
    for row in [*open_rows, *names[:CLOSED_SHOWN]]:
        rows.setdefault(row.file.folder_id, []).append(row)
    shown = {row.pk for row in open_rows}
    limits = (
        f"<file_limits>\n- current_files_open={len(open_rows)}\n"
        f"- max_files_open={max_files_open(agent)}\n</file_limits>\n\n"
    )
    limit = _room_for_each(agent, open_rows)
    parts = [_directory(folder, rows[folder.pk], shown, limit) for folder in folders]
    more = (
        "More files are closed and not listed here; find them with grep_files or semantic_search_files.\n"
        if len(names) > CLOSED_SHOWN
        else ""
    )
    return f"<directories>\n{limits}{''.join(parts)}{more}</directories>"


def _room_for_each(agent: Agent, rows: Iterable[AgentFile]) -> int:
    """Return how many characters of each open file are shown: short ones leave their room to the others."""
    left = int(agent.context_window * OPEN_SHARE * CHARS_PER_TOKEN)
    lengths = sorted(len(row.visible_content or "") for row in rows)
    for place, length in enumerate(lengths):
        share = left // (len(lengths) - place)
        if length > share:
            return min(share, view_limit_chars(agent))
        left -= length
    return view_limit_chars(agent)


def _directory(
    folder: Folder, rows: list[AgentFile], shown: set[uuid.UUID], limit_chars: int
) -> str:
    description = f"<description>{folder.description}</description>\n" if folder.description else ""
    instructions = (
        f"<instructions>{folder.instructions}</instructions>\n" if folder.instructions else ""
    )
    files = "".join(_file(row, row.pk in shown, limit_chars) for row in rows)
    return f"<directory name={quoteattr(folder.name)}>\n{description}{instructions}{files}</directory>\n"


def _file(row: AgentFile, is_open: bool, limit_chars: int) -> str:
    if not is_open:
        return f'<file status="closed" name={quoteattr(file_label(row.file))}/>\n'
    value = row.visible_content or ""
    if len(value) > limit_chars + len(TRUNCATED):
        value = value[:limit_chars] + TRUNCATED
    return (
        f'<file status="open" name={quoteattr(file_label(row.file))}>\n<metadata>\n- read_only=true\n'
        f"- chars_current={len(value)}\n- chars_limit={limit_chars}\n</metadata>\n"
        f"<value>\n{value}\n</value>\n</file>\n"
    )
