"""Search in messages: `/v1/messages/search` and, in the old form, `/v1/agents/messages/search`."""

from __future__ import annotations

from typing import Annotated, Literal

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from agents.selectors import get_agent
from conversations.api.archive_bodies import Limit, Query
from conversations.api.base import ApiView
from conversations.api.bodies import Body
from conversations.search import (
    SEARCHED_ROLES,
    FoundMessage,
    MessageQuery,
    place_of,
    search_messages,
)
from conversations.wire.search import message_list_result, message_search_result
from souveraine import ids
from souveraine.api.validation import UtcMoment, parse_body, parse_id

Role = Literal["assistant", "user", "tool", "function", "system", "approval", "summary"]


class SearchAllMessages(Body):
    """A search in a conversation, in those of an agent, or in all of the caller's."""

    query: Query
    search_mode: Literal["vector", "fts", "hybrid"] = "hybrid"
    agent_id: str | None = None
    conversation_id: str | None = None
    limit: Limit = 50
    start_date: UtcMoment | None = None
    end_date: UtcMoment | None = None


class MessageSearch(SearchAllMessages):
    """The same with a choice of roles; without `query` the newest messages."""

    query: Query | None = None  # type: ignore[assignment]
    roles: Annotated[list[Role], Field(max_length=20)] | None = None


def find(view: ApiView, body: SearchAllMessages) -> list[FoundMessage]:
    """Search for what a body asks. Raises ValidationFailed or NotFound for its ids."""
    agent = None
    if body.agent_id:
        agent = get_agent(view.actor, parse_id(ids.AGENT, body.agent_id, source="body"))
    conversation = None
    if body.conversation_id:
        conversation = view.conversation(body.conversation_id, body.agent_id)
    roles = body.roles if isinstance(body, MessageSearch) and body.roles else SEARCHED_ROLES
    wanted = MessageQuery(
        query=body.query or "",
        roles=roles,
        since=body.start_date,
        until=body.end_date,
        limit=body.limit,
        mode=body.search_mode,
    )
    return search_messages(place_of(view.actor, agent, conversation), wanted)


class MessageSearchView(ApiView):
    """Search over everything that was said."""

    @extend_schema(operation_id="messages_search", request=SearchAllMessages)
    def post(self, request: Request) -> Response:
        """Return the messages that answer a query best, best first."""
        return Response(
            [message_list_result(f) for f in find(self, parse_body(SearchAllMessages, request))]
        )


class AgentMessageSearchView(ApiView):
    """The same with ranks and scores."""

    @extend_schema(operation_id="agents_messages_search", request=MessageSearch)
    def post(self, request: Request) -> Response:
        """Return the messages with their places in both ways of searching, best first."""
        return Response(
            [message_search_result(f) for f in find(self, parse_body(MessageSearch, request))]
        )
