"""Routes of folders and files. Letta's older `sources` are the same views under another name."""

from __future__ import annotations

from typing import Any

from django.urls import re_path
from drf_spectacular.utils import extend_schema, extend_schema_view

from conversations.api import agent_folders, folders
from conversations.api.base import ApiView

AGENT = r"^agents/(?P<agent_id>[^/]+)"
METHODS = ("get", "post", "patch", "delete")


def under_older_name(view: type[ApiView]) -> type[ApiView]:
    """Return the view with operation ids of its own, which the description of the API needs."""
    base: Any = view
    operations = {
        method: extend_schema(operation_id=f"sources_{view.__name__}_{method}")
        for method in METHODS
        if hasattr(view, method)
    }
    renamed: type[ApiView] = type(f"Source{view.__name__}", (base,), {"__doc__": view.__doc__})
    return extend_schema_view(**operations)(renamed)


def _routes(name: str, adapt: Any) -> list[Any]:
    one = rf"^{name}/(?P<folder_id>[^/]+)"
    of_agent = rf"{AGENT}/{name}"
    found = [
        (rf"^{name}/?$", folders.FoldersView),
        (rf"^{name}/count/?$", folders.FolderCountView),
        (rf"^{name}/metadata/?$", folders.FolderStatsView),
        (rf"^{name}/name/(?P<folder_name>.+?)/?$", folders.FolderNameView),
        (rf"{one}/agents/?$", folders.FolderAgentsView),
        (rf"{one}/files/?$", folders.FolderFilesView),
        (rf"{one}/files/(?P<file_id>[^/]+)/?$", folders.FolderFileView),
        (rf"{one}/passages/?$", folders.FolderPassagesView),
        (rf"{one}/upload/?$", folders.FolderUploadView),
        (rf"{one}/?$", folders.FolderView),
        (rf"{one}/(?P<file_id>[^/]+)/?$", folders.FolderFileDeletionView),
        (rf"{of_agent}/?$", agent_folders.AgentFoldersView),
        (rf"{of_agent}/attach/(?P<folder_id>[^/]+)/?$", agent_folders.AgentFolderAttachView),
        (rf"{of_agent}/detach/(?P<folder_id>[^/]+)/?$", agent_folders.AgentFolderDetachView),
    ]
    return [re_path(pattern, adapt(view).as_view()) for pattern, view in found]


FILES = rf"{AGENT}/files"
urlpatterns = [
    *_routes("folders", lambda view: view),
    *_routes("sources", under_older_name),
    re_path(rf"{FILES}/?$", agent_folders.AgentFilesView.as_view()),
    re_path(rf"{FILES}/close-all/?$", agent_folders.AgentFilesCloseAllView.as_view()),
    re_path(rf"{FILES}/(?P<file_id>[^/]+)/open/?$", agent_folders.AgentFileOpenView.as_view()),
    re_path(rf"{FILES}/(?P<file_id>[^/]+)/close/?$", agent_folders.AgentFileCloseView.as_view()),
]
