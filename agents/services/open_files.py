"""Which files an agent has open. Those that were not looked at for longest give way when there are too many."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from agents.files.view import view_of
from agents.folder_selectors import content_of, get_agent_file, max_files_open, view_limit_chars
from agents.models import Agent, AgentFile, File
from souveraine.errors import InvalidArgument, NotFound


@dataclass(frozen=True)
class Opening:
    """A file to open: `length` lines (None: all) behind the first `offset` ones."""

    file_id: uuid.UUID
    offset: int = 0
    length: int | None = None


def file_label(file: File) -> str:
    """Return the name by which agents and clients know a file: `folder/name`."""
    return f"{file.folder.name}/{file.name}"


def add_to_agent(agent: Agent, files: Sequence[File]) -> None:
    """Give the agent files that it does not have, open as far as there is room. Inside a transaction."""
    limit = view_limit_chars(agent)
    room = max_files_open(agent) - AgentFile.objects.filter(agent=agent, is_open=True).count()
    known = set(AgentFile.objects.filter(agent=agent).values_list("file_id", flat=True))
    now = timezone.now()
    rows: list[AgentFile] = []
    for file in files:
        if file.pk in known:
            continue
        row = AgentFile(agent=agent, file=file)
        text = content_of(file) if len(rows) < room else None
        if text is not None:
            _show(row, text, Opening(file.pk), limit)
            row.last_accessed_at = now
        rows.append(row)
    AgentFile.objects.bulk_create(rows, batch_size=500)


def _show(row: AgentFile, text: str, opening: Opening, limit_chars: int) -> None:
    view = view_of(text, limit_chars, opening.offset, opening.length)
    row.is_open, row.visible_content = True, view.text
    row.start_line, row.end_line = view.start, view.end


def open_files(
    agent: Agent, openings: Sequence[Opening], *, closes_others: bool = False
) -> tuple[list[AgentFile], list[str]]:
    """Open files and return them with the names of those that were closed for it.

    Raises NotFound for a file that the agent does not have, InvalidArgument for more than it may have open
    and for a view behind the end of a file.
    """
    most = max_files_open(agent)
    if len({o.file_id for o in openings}) > most:
        raise InvalidArgument(f"At most {most} files can be open at once (max_files_open).")
    with transaction.atomic():
        Agent.objects.select_for_update().get(pk=agent.pk)
        opened = [_opened(agent, opening) for opening in openings]
        others = AgentFile.objects.filter(agent=agent, is_open=True).exclude(
            pk__in=[row.pk for row in opened]
        )
        wanted = others.select_related("file__folder").order_by("-last_accessed_at", "pk")
        kept = 0 if closes_others else most - len(opened)
        closed = list(wanted)[max(0, kept) :]
        AgentFile.objects.filter(pk__in=[row.pk for row in closed]).update(is_open=False)
    return opened, [file_label(row.file) for row in closed]


def _opened(agent: Agent, opening: Opening) -> AgentFile:
    row = get_agent_file(agent, opening.file_id)
    text = content_of(row.file)
    if text is None:
        raise NotFound(f"{file_label(row.file)} has no text to show.")
    lines = text.count("\n") + (not text.endswith("\n"))
    if opening.offset >= lines:
        raise InvalidArgument(
            f"{file_label(row.file)} has {lines} lines, so there is nothing behind the first {opening.offset}."
        )
    _show(row, text, opening, view_limit_chars(agent))
    row.last_accessed_at = timezone.now()
    row.save(
        update_fields=["is_open", "visible_content", "start_line", "end_line", "last_accessed_at"]
    )
    return row


def close_file(agent: Agent, file_id: uuid.UUID) -> AgentFile:
    """Close a file; a closed one stays closed. Raises NotFound."""
    row = get_agent_file(agent, file_id)
    AgentFile.objects.filter(pk=row.pk).update(is_open=False)
    return row


def close_all_files(agent: Agent) -> list[str]:
    """Close everything and return the names of what was open."""
    with transaction.atomic():
        Agent.objects.select_for_update().get(pk=agent.pk)
        rows = list(
            AgentFile.objects.filter(agent=agent, is_open=True).select_related("file__folder")
        )
        AgentFile.objects.filter(pk__in=[row.pk for row in rows]).update(is_open=False)
    return [file_label(row.file) for row in rows]


def note_access(agent: Agent, file_ids: Sequence[uuid.UUID]) -> None:
    """Note that the agent has just looked into these files."""
    AgentFile.objects.filter(agent=agent, file__in=file_ids).update(last_accessed_at=timezone.now())
