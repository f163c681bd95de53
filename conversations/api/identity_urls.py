"""Routes of identities, groups and tags."""

from __future__ import annotations

from django.urls import re_path

from conversations.api import groups, identities

AGENT = r"^agents/(?P<agent_id>[^/]+)"
BLOCK = r"^blocks/(?P<block_id>[^/]+)"
GROUP = r"^groups/(?P<group_id>[^/]+)"
IDENTITY = r"^identities/(?P<identity_id>[^/]+)"
ATTACH, DETACH = (
    r"identities/attach/(?P<identity_id>[^/]+)/?$",
    r"identities/detach/(?P<identity_id>[^/]+)/?$",
)

urlpatterns = [
    re_path(rf"{AGENT}/{ATTACH}", identities.AgentIdentityView.as_view()),
    re_path(rf"{AGENT}/{DETACH}", identities.AgentIdentityDetachView.as_view()),
    re_path(rf"{AGENT}/groups/?$", groups.AgentGroupsView.as_view()),
    re_path(rf"{BLOCK}/{ATTACH}", identities.BlockIdentityView.as_view()),
    re_path(rf"{BLOCK}/{DETACH}", identities.BlockIdentityDetachView.as_view()),
    re_path(r"^identities/?$", identities.IdentitiesView.as_view()),
    re_path(r"^identities/count/?$", identities.IdentityCountView.as_view()),
    re_path(rf"{IDENTITY}/properties/?$", identities.IdentityPropertiesView.as_view()),
    re_path(rf"{IDENTITY}/agents/?$", identities.IdentityAgentsView.as_view()),
    re_path(rf"{IDENTITY}/blocks/?$", identities.IdentityBlocksView.as_view()),
    re_path(rf"{IDENTITY}/?$", identities.OneIdentityView.as_view()),
    re_path(r"^groups/?$", groups.GroupsView.as_view()),
    re_path(r"^groups/count/?$", groups.GroupCountView.as_view()),
    re_path(rf"{GROUP}/blocks/attach/(?P<block_id>[^/]+)/?$", groups.GroupBlockView.as_view()),
    re_path(
        rf"{GROUP}/blocks/detach/(?P<block_id>[^/]+)/?$",
        groups.GroupBlockDetachView.as_view(),
    ),
    re_path(rf"{GROUP}/?$", groups.GroupView.as_view()),
    re_path(r"^tags/?$", groups.TagsView.as_view()),
]
