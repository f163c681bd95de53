"""Routes of archives, passages and search."""

from __future__ import annotations

from django.urls import re_path

from conversations.api import archives, search

ARCHIVE = r"^archives/(?P<archive_id>[^/]+)"
AGENT_ARCHIVES = r"^agents/(?P<agent_id>[^/]+)/archives"
ARCHIVAL_MEMORY = r"^agents/(?P<agent_id>[^/]+)/archival-memory"

urlpatterns = [
    re_path(r"^archives/?$", archives.ArchivesView.as_view()),
    re_path(rf"{ARCHIVE}/agents/?$", archives.ArchiveAgentsView.as_view()),
    re_path(rf"{ARCHIVE}/passages/?$", archives.ArchivePassagesView.as_view()),
    re_path(rf"{ARCHIVE}/passages/batch/?$", archives.ArchivePassageBatchView.as_view()),
    re_path(rf"{ARCHIVE}/passages/(?P<passage_id>[^/]+)/?$", archives.ArchivePassageView.as_view()),
    re_path(rf"{ARCHIVE}/?$", archives.ArchiveView.as_view()),
    re_path(
        rf"{AGENT_ARCHIVES}/attach/(?P<archive_id>[^/]+)/?$",
        archives.AgentArchiveAttachView.as_view(),
    ),
    re_path(
        rf"{AGENT_ARCHIVES}/detach/(?P<archive_id>[^/]+)/?$",
        archives.AgentArchiveDetachView.as_view(),
    ),
    re_path(rf"{ARCHIVAL_MEMORY}/?$", archives.ArchivalMemoryView.as_view()),
    re_path(rf"{ARCHIVAL_MEMORY}/search/?$", archives.ArchivalMemorySearchView.as_view()),
    re_path(rf"{ARCHIVAL_MEMORY}/(?P<memory_id>[^/]+)/?$", archives.ArchivalPassageView.as_view()),
    re_path(r"^messages/search/?$", search.MessageSearchView.as_view()),
    re_path(r"^agents/messages/search/?$", search.AgentMessageSearchView.as_view()),
    re_path(r"^passages/search/?$", archives.PassageSearchView.as_view()),
]
