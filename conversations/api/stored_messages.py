"""Messages as they are stored: one, all of the caller's, reset; and editing, which is refused."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.base import ApiView, message_cursor
from conversations.api.bodies import Body
from conversations.selectors import get_message, list_all_messages
from conversations.services.sessions import reset_default_conversation
from conversations.wire.agents import agent_states
from conversations.wire.frames import frames_of, frames_of_all
from souveraine import ids
from souveraine.api.pagination import MAX_LIMIT, PageQuery
from souveraine.api.validation import parse_body, parse_id, parse_query
from souveraine.errors import EditingRefused

EDITING_IS_OVER = (
    "Message editing is no longer supported. What was said stays as it was said; say something new, or fork the "
    "conversation from an earlier message: POST /v1/conversations/{id}/fork?message_id=…."
)


class AllMessagesQuery(PageQuery):
    """Query of the list of all messages."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)
    conversation_id: str | None = None
    include_return_message_types: list[str] | None = None


class MessageEdit(Body):
    """What an edit would say; nothing of it matters."""


class ResetMessages(Body):
    """ResetMessagesRequest; there are no default initial messages here, so the flag changes nothing."""

    add_default_initial_messages: bool = False


class MessagesView(ApiView):
    """All messages of the caller."""

    query_model = AllMessagesQuery

    @extend_schema(operation_id="messages_list")
    def get(self, request: Request) -> Response:
        """List the messages of all agents, newest first; or of one conversation."""
        query = parse_query(AllMessagesQuery, request)
        types = query.include_return_message_types
        conversation = self.conversation(query.conversation_id) if query.conversation_id else None
        rows = list_all_messages(
            self.actor,
            conversation=conversation,
            ascending=query.order == "asc",
            limit=query.limit,
            after=message_cursor(query.after, "after"),
            before=message_cursor(query.before, "before"),
            types=types,
        )
        return Response(frames_of_all(rows, types))


class MessageView(ApiView):
    """One stored message."""

    @extend_schema(operation_id="messages_retrieve")
    def get(self, request: Request, message_id: str) -> Response:
        """Return the message as an array: one row can be several wire messages."""
        return Response(frames_of(get_message(self.actor, parse_id(ids.MESSAGE, message_id))))


class EditedMessageView(ApiView):
    """Editing a message, which the old server gave up too."""

    @extend_schema(operation_id="agents_messages_update", request=MessageEdit)
    def patch(self, request: Request, agent_id: str, message_id: str) -> Response:
        """Refuse (405), saying what to do instead."""
        parse_body(MessageEdit, request)
        get_message(self.actor, parse_id(ids.MESSAGE, message_id))
        raise EditingRefused(EDITING_IS_OVER)


class ResetMessagesView(ApiView):
    """An agent's default conversation from the beginning."""

    @extend_schema(operation_id="agents_messages_reset", request=ResetMessages)
    def patch(self, request: Request, agent_id: str) -> Response:
        """Begin the default conversation anew and return the agent; other conversations stay."""
        parse_body(ResetMessages, request)
        agent = self.agent(agent_id)
        reset_default_conversation(self.actor, agent)
        return Response(agent_states(self.actor, [agent], with_context=True)[0])
