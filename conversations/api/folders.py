"""`/v1/folders` and, under its older name, `/v1/sources`: folders, their files, and the upload."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from agents.archive_selectors import list_passages
from agents.folder_selectors import (
    content_of,
    folder_of_name,
    folder_stats,
    folders_of,
    get_file,
    get_folder,
    list_files,
    list_folders,
)
from agents.models import File, Folder
from agents.selectors import agents_of, get_agent
from agents.services import files as file_services
from agents.services import folders as services
from conversations.api.base import ApiView, cursor
from conversations.api.folder_bodies import (
    ContentQuery,
    FileFilters,
    FolderCreate,
    FolderFilters,
    FolderPages,
    FolderUpdate,
    StatsQuery,
    UploadQuery,
)
from conversations.wire.archives import passage_state
from conversations.wire.folders import file_state, folder_state, stats_state
from souveraine import ids
from souveraine.api.pagination import PageQuery, page
from souveraine.api.validation import failed, parse_body, parse_id, parse_query
from souveraine.lib.text import bad_text_place


class FolderApiView(ApiView):
    """A view of one folder."""

    def folder(self, text: str) -> Folder:
        """Return the folder of the path. Raises ValidationFailed or NotFound."""
        return get_folder(self.actor, parse_id(ids.FOLDER, text, "folder_id"))

    def file(self, folder_id: str, file_id: str) -> File:
        """Return the file of the path. Raises ValidationFailed or NotFound."""
        return get_file(self.folder(folder_id), parse_id(ids.FILE, file_id))


class FoldersView(ApiView):
    """The collection."""

    query_model = FolderFilters

    @extend_schema(operation_id="folders_list")
    def get(self, request: Request) -> Response:
        """List folders, oldest first."""
        query = parse_query(FolderFilters, request)
        found = list_folders(
            self.actor,
            name=query.name,
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.FOLDER, query.after, "after"),
            before=cursor(ids.FOLDER, query.before, "before"),
        )
        return Response([folder_state(folder) for folder in found])

    @extend_schema(operation_id="folders_create", request=FolderCreate)
    def post(self, request: Request) -> Response:
        """Create a folder; a name that is taken is 409."""
        data = parse_body(FolderCreate, request).model_dump(exclude_unset=True)
        return Response(folder_state(services.create_folder(self.actor, data)))


class FolderCountView(ApiView):
    """How many folders there are."""

    @extend_schema(operation_id="folders_count")
    def get(self, request: Request) -> Response:
        """Count the caller's folders."""
        return Response(folders_of(self.actor).count())


class FolderStatsView(ApiView):
    """How much is in the folders."""

    query_model = StatsQuery

    @extend_schema(operation_id="folders_metadata")
    def get(self, request: Request) -> Response:
        """Return numbers and sizes of files, by folder; with each file if that is asked for."""
        query = parse_query(StatsQuery, request)
        files: dict[Any, list[File]] = defaultdict(list)
        if query.include_detailed_per_source_metadata:
            rows = File.objects.filter(folder__owner=self.actor.user).select_related("folder")
            for file in rows.order_by("created_at", "pk"):
                files[file.folder_id].append(file)
        return Response(stats_state(folder_stats(self.actor), files))


class FolderNameView(ApiView):
    """Finding a folder by its name."""

    @extend_schema(operation_id="folders_name_retrieve")
    def get(self, request: Request, folder_name: str) -> Response:
        """Return the id of the folder of that name."""
        place = bad_text_place(folder_name, "path")
        if place:
            raise failed("string_unicode", ("path", "folder_name"), place)
        return Response(ids.make(ids.FOLDER, folder_of_name(self.actor, folder_name).pk))


class FolderView(FolderApiView):
    """One folder."""

    @extend_schema(operation_id="folders_retrieve")
    def get(self, request: Request, folder_id: str) -> Response:
        """Return the folder."""
        return Response(folder_state(self.folder(folder_id)))

    @extend_schema(operation_id="folders_update", request=FolderUpdate)
    def patch(self, request: Request, folder_id: str) -> Response:
        """Change what the body names."""
        data = parse_body(FolderUpdate, request).model_dump(exclude_none=True)
        folder = self.folder(folder_id)
        return Response(folder_state(services.update_folder(self.actor, folder, data)))

    @extend_schema(operation_id="folders_delete")
    def delete(self, request: Request, folder_id: str) -> Response:
        """Delete the folder with its files and take it from all agents."""
        services.delete_folder(self.actor, self.folder(folder_id))
        return Response(None)


class FolderAgentsView(FolderApiView):
    """Who has a folder."""

    query_model = PageQuery

    @extend_schema(operation_id="folders_agents_list")
    def get(self, request: Request, folder_id: str) -> Response:
        """List the ids of the agents that have the folder, newest first."""
        folder = self.folder(folder_id)
        query = parse_query(PageQuery, request)
        after = cursor(ids.AGENT, query.after, "after")
        before = cursor(ids.AGENT, query.before, "before")
        agents = page(
            agents_of(self.actor).filter(folder_rows__folder=folder),
            field="created_at",
            ascending=query.order == "asc",
            limit=query.limit,
            after=get_agent(self.actor, after) if after else None,
            before=get_agent(self.actor, before) if before else None,
        )
        return Response([ids.make(ids.AGENT, agent.pk) for agent in agents])


class FolderFilesView(FolderApiView):
    """A folder's files."""

    query_model = FileFilters

    @extend_schema(operation_id="folders_files_list")
    def get(self, request: Request, folder_id: str) -> Response:
        """List files, newest first; their texts if `include_content` is set."""
        query = parse_query(FileFilters, request)
        found = list_files(
            self.folder(folder_id),
            ascending=query.order == "asc",
            limit=query.limit,
            with_content=query.include_content,
            after=cursor(ids.FILE, query.after, "after"),
            before=cursor(ids.FILE, query.before, "before"),
        )
        if not query.include_content:
            return Response([file_state(file) for file in found])
        contents = [getattr(file, "content", None) for file in found]
        return Response(
            [file_state(f, c.text if c else None) for f, c in zip(found, contents, strict=True)]
        )


class FolderFileView(FolderApiView):
    """One file."""

    query_model = ContentQuery

    @extend_schema(operation_id="folders_files_retrieve")
    def get(self, request: Request, folder_id: str, file_id: str) -> Response:
        """Return the file; its text if `include_content` is set."""
        file = self.file(folder_id, file_id)
        query = parse_query(ContentQuery, request)
        return Response(file_state(file, content_of(file) if query.include_content else None))


class FolderFileDeletionView(FolderApiView):
    """Deleting a file, at a path of its own."""

    @extend_schema(operation_id="folders_files_delete", responses={204: None})
    def delete(self, request: Request, folder_id: str, file_id: str) -> Response:
        """Delete the file; agents lose it."""
        file_services.delete_file(self.file(folder_id, file_id))
        return Response(status=204)


class FolderPassagesView(FolderApiView):
    """A folder's passages."""

    query_model = FolderPages

    @extend_schema(operation_id="folders_passages_list")
    def get(self, request: Request, folder_id: str) -> Response:
        """List the passages of all files, newest first."""
        query = parse_query(FolderPages, request)
        found = list_passages(
            [self.folder(folder_id).archive],
            search=None,
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.PASSAGE, query.after, "after"),
            before=cursor(ids.PASSAGE, query.before, "before"),
        )
        return Response([passage_state(passage) for passage in found])


class FolderUploadView(FolderApiView):
    """The upload."""

    parser_classes = [MultiPartParser]
    query_model = UploadQuery

    @extend_schema(
        operation_id="folders_files_upload",
        request={
            "multipart/form-data": {
                "type": "object",
                "properties": {"file": {"type": "string", "format": "binary"}},
                "required": ["file"],
            }
        },
    )
    def post(self, request: Request, folder_id: str) -> Response:
        """Store a file; a job reads it (`processing_status`)."""
        folder = self.folder(folder_id)
        query = parse_query(UploadQuery, request)
        given = request.FILES.get("file")
        if given is None:
            raise failed(
                "missing", ("body", "file"), "Field required: send it as multipart/form-data"
            )
        name = query.name or given.name or ""
        place = bad_text_place(name, "name")
        if place:
            raise failed("string_unicode", ("body", "file"), place)
        file = file_services.upload_file(
            self.actor, folder, name, given.chunks(), query.duplicate_handling
        )
        return Response(file_state(file))
