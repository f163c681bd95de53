"""Writes of folders, and which agents have them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.actor import Actor
from agents.files import store
from agents.folder_selectors import get_folder
from agents.models import Agent, AgentFile, AgentFolder, AgentTool, File, FileStatus, Folder, Tool
from agents.services.archives import clear_archive, create_archive
from agents.services.open_files import add_to_agent
from agents.services.tools import attach_tool, detach_tool
from souveraine import ids
from souveraine.errors import Conflict, NotFound

FILE_TOOLS = ("open_files", "grep_files", "semantic_search_files")


def create_folder(actor: Actor, data: dict[str, Any]) -> Folder:
    """Create a folder. Raises Conflict for a name that is taken, and as `create_archive` for its `embedding`."""
    try:
        with transaction.atomic():
            archive = create_archive(actor, data)
            return Folder.objects.create(
                owner=actor.user,
                created_by=actor.user_id,
                last_updated_by=actor.user_id,
                name=data["name"],
                description=data.get("description"),
                instructions=data.get("instructions"),
                metadata=data.get("metadata"),
                archive=archive,
            )
    except IntegrityError:
        raise _name_taken(data["name"]) from None


def update_folder(actor: Actor, folder: Folder, data: dict[str, Any]) -> Folder:
    """Change name, description, instructions and metadata. Raises Conflict for a name that is taken."""
    names = [n for n in ("name", "description", "instructions", "metadata") if n in data]
    for name in names:
        setattr(folder, name, data[name])
    folder.updated_at, folder.last_updated_by = timezone.now(), actor.user_id
    try:
        with transaction.atomic():
            folder.save(update_fields=[*names, "updated_at", "last_updated_by"])
    except IntegrityError:
        raise _name_taken(data["name"]) from None
    return folder


def _name_taken(name: str) -> Conflict:
    return Conflict(
        f"You have a folder named '{name}' already. Choose another name, or use that one."
    )


def delete_folder(actor: Actor, folder: Folder) -> None:
    """Delete a folder with its files and passages, and take it from all agents."""
    clear_archive(folder.archive)
    with transaction.atomic():
        Folder.objects.select_for_update().filter(pk=folder.pk).first()
        agents = list(Agent.objects.filter(folder_rows__folder=folder))
        folder.archive.delete()  # the folder and its files go with it
        for agent in agents:
            _count_folders(agent)
        transaction.on_commit(lambda: store.remove_folder(folder.pk))
    for agent in agents:
        with suppress(Agent.DoesNotExist):  # deleted meanwhile
            _detach_tools_without_folders(actor, agent)


def find_folders(actor: Actor, data: dict[str, Any]) -> list[Folder] | None:
    """Return what `folder_ids` and, by their older name, `source_ids` of an agent's body mean; None: not given.

    Raises NotFound.
    """
    if data.get("folder_ids") is None and data.get("source_ids") is None:
        return None
    given = [*(data.get("folder_ids") or ()), *(data.get("source_ids") or ())]
    return [get_folder(actor, ids.parse(ids.FOLDER, text)) for text in dict.fromkeys(given)]


def replace_folders(actor: Actor, agent: Agent, folders: list[Folder]) -> None:
    """Let the agent have these folders and no others."""
    for folder in Folder.objects.filter(agent_rows__agent=agent).exclude(
        pk__in=[f.pk for f in folders]
    ):
        detach_folder(actor, agent, folder)
    for folder in folders:
        attach_folder(actor, agent, folder)


def attach_folder(actor: Actor, agent: Agent, folder: Folder) -> Agent:
    """Give the agent a folder: its files, as many open as there is room for, and the tools for files. Idempotent."""
    with transaction.atomic():
        # A file that is just becoming ready finds the agent, or is found here.
        if not Folder.objects.select_for_update().filter(pk=folder.pk).exists():
            raise NotFound(f"Folder with id 'source-{folder.pk}' not found")
        _, is_new = AgentFolder.objects.get_or_create(agent=agent, folder=folder)
        if is_new:
            _count_folders(agent)
            add_to_agent(agent, _ready_files(folder))
    for tool in Tool.objects.filter(owner=None, name__in=FILE_TOOLS).order_by("name"):
        has_one = AgentTool.objects.filter(agent=agent, tool__name=tool.name).exists()
        if not has_one:
            attach_tool(actor, agent, tool)
    agent.refresh_from_db()
    _detach_tools_without_folders(actor, agent)  # the folder was deleted meanwhile
    return agent


def detach_folder(actor: Actor, agent: Agent, folder: Folder) -> Agent:
    """Take a folder from the agent, and with the last one the tools for files. Idempotent."""
    with transaction.atomic():
        AgentFolder.objects.filter(agent=agent, folder=folder).delete()
        AgentFile.objects.filter(agent=agent, file__folder=folder).delete()
        _count_folders(agent)
    _detach_tools_without_folders(actor, agent)
    agent.refresh_from_db()
    return agent


def _ready_files(folder: Folder) -> list[File]:
    ready = File.objects.filter(folder=folder, status=FileStatus.COMPLETED)
    return list(ready.order_by("created_at", "pk"))


def _count_folders(agent: Agent) -> None:
    agent.folder_count = AgentFolder.objects.filter(agent=agent).count()
    Agent.objects.filter(pk=agent.pk).update(folder_count=agent.folder_count)


def _detach_tools_without_folders(actor: Actor, agent: Agent) -> None:
    if agent.folder_count:
        return
    for tool in Tool.objects.filter(owner=None, name__in=FILE_TOOLS, agent_rows__agent=agent):
        detach_tool(actor, agent, tool)
