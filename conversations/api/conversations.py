"""`/v1/conversations`: create, list, retrieve, update, delete, and the message lists."""

from __future__ import annotations

from typing import Literal

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from agents.actor import Actor
from conversations.api.base import DEFAULT, AgentIdQuery, ApiView, cursor, required_agent_id
from conversations.api.bodies import Body, CreateConversation, UpdateConversation
from conversations.composition import server
from conversations.models import Conversation
from conversations.selectors import (
    in_context_ids,
    list_agent_messages,
    list_conversation_messages,
    list_conversations,
    pending_messages,
)
from conversations.services import sessions
from conversations.services.forks import fork_conversation
from conversations.wire.frames import frames_of_all
from conversations.wire.states import conversation_state
from souveraine import ids
from souveraine.api.pagination import MAX_LIMIT, PageQuery
from souveraine.api.validation import failed, parse_body, parse_id, parse_query


class ConversationFilters(PageQuery):
    """Query of the conversations list."""

    agent_id: str | None = None
    summary_search: str | None = None
    archive_status: Literal["unarchived", "archived", "all"] = "unarchived"
    order_by: Literal["created_at", "last_run_completion", "last_message_at"] = "created_at"


class MessageQuery(PageQuery):
    """Query of the message lists."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)
    agent_id: str | None = None
    conversation_id: str | None = None
    include_return_message_types: list[str] | None = None


class ConversationsView(ApiView):
    """The collection."""

    query_model = ConversationFilters
    query_models = {"POST": AgentIdQuery}

    @extend_schema(operation_id="conversations_list")
    def get(self, request: Request) -> Response:
        """List conversations, newest first."""
        query = parse_query(ConversationFilters, request)
        agent = None
        if query.agent_id:
            agent = server().inventory.get_agent(
                self.actor, parse_id(ids.AGENT, query.agent_id, source="query")
            )
        found = list_conversations(
            self.actor,
            agent=agent,
            field=query.order_by,
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.CONVERSATION, query.after, "after"),
            before=cursor(ids.CONVERSATION, query.before, "before"),
            summary_search=query.summary_search,
            archive_status=query.archive_status,
        )
        pending = pending_messages(found)
        return Response([conversation_state(c, pending=pending.get(c.pk)) for c in found])

    @extend_schema(operation_id="conversations_create", request=CreateConversation)
    def post(self, request: Request) -> Response:
        """Create a conversation of the agent in `agent_id` (query or body)."""
        body = parse_body(CreateConversation, request)
        agent = server().inventory.get_agent(self.actor, required_agent_id(request, body.agent_id))
        _check_model(self.actor, body.model)
        data = body.model_dump(exclude={"agent_id"}, exclude_unset=True)
        return Response(
            conversation_state(server().sessions.create_conversation(self.actor, agent, data))
        )


class ForkQuery(BaseModel):
    """Query of fork."""

    agent_id: str | None = None
    message_id: str | None = None
    hidden: bool = False


class ConversationForkView(ApiView):
    """A new conversation that begins as this one."""

    query_model = ForkQuery

    @extend_schema(operation_id="conversations_fork", request=None)
    def post(self, request: Request, conversation_id: str) -> Response:
        """Fork the conversation: with all of its messages, or up to and including `message_id`."""
        parse_body(Body, request)
        query = parse_query(ForkQuery, request)
        source = self.conversation(conversation_id, query.agent_id)
        fork = fork_conversation(
            self.actor,
            source,
            message_id=cursor(ids.MESSAGE, query.message_id, "message_id"),
            is_hidden=query.hidden,
        )
        return Response(conversation_state(fork, in_context_ids(fork)))


class ConversationView(ApiView):
    """One conversation."""

    @extend_schema(operation_id="conversations_retrieve")
    def get(self, request: Request, conversation_id: str) -> Response:
        """Return the conversation with the ids of its prompt window."""
        conversation = self._named(conversation_id)
        pending = pending_messages([conversation]).get(conversation.pk)
        return Response(conversation_state(conversation, in_context_ids(conversation), pending))

    @extend_schema(operation_id="conversations_update", request=UpdateConversation)
    def patch(self, request: Request, conversation_id: str) -> Response:
        """Change what the body names; null clears."""
        data = parse_body(UpdateConversation, request).model_dump(exclude_unset=True)
        _check_model(self.actor, data.get("model"))
        changed = sessions.update_conversation(self.actor, self._named(conversation_id), data)
        pending = pending_messages([changed]).get(changed.pk)
        return Response(conversation_state(changed, pending=pending))

    @extend_schema(operation_id="conversations_delete")
    def delete(self, request: Request, conversation_id: str) -> Response:
        """Delete the conversation; a turn that runs is cancelled."""
        sessions.delete_conversation(self.actor, self._named(conversation_id))
        return Response(None)

    def _named(self, text: str) -> Conversation:
        return server().sessions.get_conversation(
            self.actor, parse_id(ids.CONVERSATION, text, "conversation_id")
        )


def _check_model(actor: Actor, handle: str | None) -> None:
    """Raise InvalidArgument or NotFound for a model that is not there."""
    if handle:
        server().models.get_model(actor, handle)


def list_messages(view: ApiView, request: Request, conversation_id: str) -> Response:
    """Answer GET conversations/{id}/messages; `default` has the old server's form (decision 0001)."""
    query = parse_query(MessageQuery, request)
    types = query.include_return_message_types
    is_default = conversation_id == DEFAULT or conversation_id.startswith("agent-")
    if conversation_id == DEFAULT and not query.agent_id:
        return Response([])
    conversation = view.conversation(conversation_id, query.agent_id)
    bounds = {
        "ascending": query.order == "asc",
        "limit": query.limit,
        "after": _id(query.after),
        "before": _id(query.before),
        "types": types,
    }
    if is_default:
        rows = list_agent_messages(conversation.agent, conversation=conversation, **bounds)  # type: ignore[arg-type]
    else:
        rows = list_conversation_messages(conversation, **bounds)  # type: ignore[arg-type]
    return Response(frames_of_all(rows, types))


def _id(text: str | None) -> str | None:
    if text is not None:
        parse_id(ids.MESSAGE, text, "cursor", source="query")
    return text


def list_messages_of_agent(view: ApiView, request: Request, agent_id: str) -> Response:
    """List an agent's messages, oldest first inside the page: of all conversations, or of one."""
    agent = view.agent(agent_id)
    query = parse_query(MessageQuery, request)
    conversation = None
    if query.conversation_id:
        conversation = view.conversation(query.conversation_id, ids.make(ids.AGENT, agent.pk))
        if conversation.agent_id != agent.pk:
            raise failed(
                "value_error",
                ("query", "conversation_id"),
                "This conversation belongs to another agent.",
            )
    types = query.include_return_message_types
    rows = list_agent_messages(
        agent,
        conversation=conversation,
        types=types,
        ascending=query.order == "asc",
        limit=query.limit,
        after=_id(query.after),
        before=_id(query.before),
    )
    return Response(frames_of_all(rows, types))
