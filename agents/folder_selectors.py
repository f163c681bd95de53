"""Reads of folders and files, and of what an agent has open."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Count, QuerySet, Sum

from agents.actor import Actor
from agents.models import Agent, AgentFile, Archive, File, FileContent, Folder
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.errors import NotFound

DEFAULT_MAX_FILES_OPEN = 10
DEFAULT_VIEW_CHARS = 25_000


def max_files_open(agent: Agent) -> int:
    """Return how many files the agent may have open at once."""
    return int(agent.config.get("max_files_open") or DEFAULT_MAX_FILES_OPEN)


def view_limit_chars(agent: Agent) -> int:
    """Return how much of one open file the agent sees."""
    return int(agent.config.get("per_file_view_window_char_limit") or DEFAULT_VIEW_CHARS)


def folders_of(actor: Actor) -> QuerySet[Folder]:
    """Return the folders that the actor may use."""
    return Folder.objects.filter(owner=actor.user).select_related("archive")


def get_folder(actor: Actor, folder_id: uuid.UUID) -> Folder:
    """Return one folder. Raises NotFound."""
    folder = folders_of(actor).filter(pk=folder_id).first()
    if folder is None:
        raise NotFound(f"Folder with id '{ids.make(ids.FOLDER, folder_id)}' not found")
    return folder


def folder_of_name(actor: Actor, name: str) -> Folder:
    """Return the folder of that name. Raises NotFound."""
    folder = folders_of(actor).filter(name=name).first()
    if folder is None:
        raise NotFound(f"Folder with name '{name[:200]}' not found")
    return folder


def list_folders(
    actor: Actor,
    *,
    agent: Agent | None = None,
    name: str | None = None,
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Folder]:
    """Return one page of folders. Raises NotFound for an unknown cursor."""
    queryset = folders_of(actor)
    if agent is not None:
        queryset = queryset.filter(agent_rows__agent=agent)
    if name is not None:
        queryset = queryset.filter(name=name)
    return page(
        queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_folder(actor, after) if after else None,
        before=get_folder(actor, before) if before else None,
    )


def folders_of_agent(agent: Agent) -> list[Folder]:
    """Return what is attached to the agent, in the order in which it was attached."""
    if not agent.folder_count:
        return []
    rows = Folder.objects.filter(agent_rows__agent=agent).select_related("archive")
    return list(rows.order_by("agent_rows__pk"))


def archives_of_folders(agent: Agent) -> list[Archive]:
    """Return where the passages of the agent's files are."""
    return [folder.archive for folder in folders_of_agent(agent)]


def get_file(folder: Folder, file_id: uuid.UUID) -> File:
    """Return one file of the folder. Raises NotFound."""
    file = File.objects.filter(folder=folder, pk=file_id).select_related("folder").first()
    if file is None:
        raise NotFound(f"File with id '{ids.make(ids.FILE, file_id)}' not found in this folder")
    return file


def list_files(
    folder: Folder,
    *,
    ascending: bool,
    limit: int,
    with_content: bool = False,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[File]:
    """Return one page of a folder's files. Raises NotFound for an unknown cursor."""
    queryset = File.objects.filter(folder=folder).select_related("folder")
    return page(
        queryset.select_related("content") if with_content else queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_file(folder, after) if after else None,
        before=get_file(folder, before) if before else None,
    )


def content_of(file: File) -> str | None:
    """Return the text of a file; None as long as it is not read."""
    return FileContent.objects.filter(file=file).values_list("text", flat=True).first()


def files_of_agent(agent: Agent) -> QuerySet[AgentFile]:
    """Return the agent's files."""
    return AgentFile.objects.filter(agent=agent).select_related("file__folder")


def get_agent_file(agent: Agent, file_id: uuid.UUID) -> AgentFile:
    """Return a file of an attached folder as the agent has it. Raises NotFound."""
    row = files_of_agent(agent).filter(file=file_id).first()
    if row is None:
        raise NotFound(
            f"File with id '{ids.make(ids.FILE, file_id)}' not found for this agent. Attach its folder first."
        )
    return row


def list_agent_files(
    agent: Agent,
    *,
    is_open: bool | None,
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[AgentFile]:
    """Return one page; cursors are ids of files. Raises NotFound for an unknown one."""
    queryset = files_of_agent(agent)
    if is_open is not None:
        queryset = queryset.filter(is_open=is_open)
    return page(
        queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_agent_file(agent, after) if after else None,
        before=get_agent_file(agent, before) if before else None,
    )


def open_files_of(agent: Agent) -> list[AgentFile]:
    """Return what the agent has open, by name."""
    if not agent.folder_count:
        return []
    return list(files_of_agent(agent).filter(is_open=True).order_by("file__name", "pk"))


def folder_stats(actor: Actor) -> list[dict[str, Any]]:
    """Return {folder, file_count, total_size} of each folder, oldest first; one query."""
    counted = folders_of(actor).annotate(
        file_count=Count("files"), total_size=Sum("files__size_bytes")
    )
    return [
        {"folder": f, "file_count": f.file_count, "total_size": f.total_size or 0}
        for f in counted.order_by("created_at", "pk")
    ]
