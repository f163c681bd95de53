"""`/v1/agents/{id}/folders` and `/v1/agents/{id}/files`: what an agent can read and what it has open."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.folder_selectors import get_folder, list_agent_files, list_folders
from agents.models import Agent, Folder
from agents.services import open_files
from agents.services.folders import attach_folder, detach_folder
from conversations.api.base import ApiView, cursor
from conversations.api.folder_bodies import AgentFileFilters, FolderPages
from conversations.wire.agents import agent_states
from conversations.wire.folders import attachment_state, folder_state
from souveraine import ids
from souveraine.api.validation import parse_id, parse_query


class AgentFoldersView(ApiView):
    """An agent's folders."""

    query_model = FolderPages

    @extend_schema(operation_id="agents_folders_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """List the folders attached to the agent, newest first."""
        query = parse_query(FolderPages, request)
        found = list_folders(
            self.actor,
            agent=self.agent(agent_id),
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.FOLDER, query.after, "after"),
            before=cursor(ids.FOLDER, query.before, "before"),
        )
        return Response([folder_state(folder) for folder in found])


class AgentFolderView(ApiView):
    """What attaching and detaching share."""

    def folder(self, text: str) -> Folder:
        """Return the folder of the path. Raises ValidationFailed or NotFound."""
        return get_folder(self.actor, parse_id(ids.FOLDER, text, "folder_id"))

    def answer(self, agent: Agent) -> Response:
        """Answer with the agent."""
        return Response(agent_states(self.actor, [agent], with_context=True)[0])


class AgentFolderAttachView(AgentFolderView):
    """Attaching a folder."""

    @extend_schema(operation_id="agents_folders_attach")
    def patch(self, request: Request, agent_id: str, folder_id: str) -> Response:
        """Attach the folder, with the tools for files; twice is once."""
        agent = self.agent(agent_id)
        return self.answer(attach_folder(self.actor, agent, self.folder(folder_id)))


class AgentFolderDetachView(AgentFolderView):
    """Detaching a folder."""

    @extend_schema(operation_id="agents_folders_detach")
    def patch(self, request: Request, agent_id: str, folder_id: str) -> Response:
        """Detach the folder; with the last one the tools for files go."""
        agent = self.agent(agent_id)
        return self.answer(detach_folder(self.actor, agent, self.folder(folder_id)))


class AgentFilesView(ApiView):
    """An agent's files."""

    query_model = AgentFileFilters

    @extend_schema(operation_id="agents_files_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """List the files of the agent's folders; cursors are ids of files."""
        agent = self.agent(agent_id)
        query = parse_query(AgentFileFilters, request)
        found = list_agent_files(
            agent,
            is_open=query.is_open,
            ascending=query.order == "asc",
            limit=query.limit + 1 if query.limit else 0,
            after=cursor(ids.FILE, query.after or query.cursor, "after"),
            before=cursor(ids.FILE, query.before, "before"),
        )
        is_backwards = query.before is not None and not (query.after or query.cursor)
        has_more = len(found) > query.limit
        rows = found[-query.limit :] if is_backwards and query.limit else found[: query.limit]
        last = rows[-1].file_id if has_more and rows else None
        return Response(
            {
                "files": [attachment_state(row) for row in rows],
                "next_cursor": ids.make(ids.FILE, last),
                "has_more": has_more,
            }
        )


class AgentFileOpenView(ApiView):
    """Opening a file."""

    @extend_schema(operation_id="agents_files_open")
    def patch(self, request: Request, agent_id: str, file_id: str) -> Response:
        """Open the file from its start; returns the names of files that were closed for it."""
        agent = self.agent(agent_id)
        opening = open_files.Opening(parse_id(ids.FILE, file_id))
        _, closed = open_files.open_files(agent, [opening])
        return Response(closed)


class AgentFileCloseView(ApiView):
    """Closing a file."""

    @extend_schema(operation_id="agents_files_close")
    def patch(self, request: Request, agent_id: str, file_id: str) -> Response:
        """Close the file; a closed one stays closed."""
        row = open_files.close_file(self.agent(agent_id), parse_id(ids.FILE, file_id))
        return Response({"message": f"File {open_files.file_label(row.file)} successfully closed"})


class AgentFilesCloseAllView(ApiView):
    """Closing all files."""

    @extend_schema(operation_id="agents_files_close_all")
    def patch(self, request: Request, agent_id: str) -> Response:
        """Close all files; returns the names of those that were open."""
        return Response(open_files.close_all_files(self.agent(agent_id)))
