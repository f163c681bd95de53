"""Sending messages: `/v1/agents/{id}/messages`, `/stream`, and `/v1/conversations/{id}/messages`, `/stream`."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from agents.providers.capabilities import refuse_images
from conversations.api.base import ApiView
from conversations.api.bodies import Body, SendAsync, SendMessage
from conversations.api.conversations import (
    MessageQuery,
    list_messages,
    list_messages_of_agent,
)
from conversations.api.following import MAX_CURSOR, cursor_of
from conversations.api.incoming import incoming_messages, turn_options
from conversations.api.streams import JsonAnswer, RefusedStream, SseStream
from conversations.composition import server
from conversations.models import Conversation, Run
from conversations.selectors import active_run, get_run, run_of_otid
from conversations.services.accept import Accepted, IncomingMessage, TurnOptions
from conversations.wire.states import run_state
from souveraine import ids
from souveraine.api.handoff import hand_over
from souveraine.api.validation import failed, parse_body, parse_id
from souveraine.errors import (
    InvalidArgument,
    InvalidToolCallIds,
    NotFound,
    NothingPending,
    PendingApproval,
    ValidationFailed,
)
from souveraine.lib.outbound import Refused, check_url

NO_ACTIVE_RUN = "No active runs found for this conversation."  # matched by letta-mobile
STREAM_OPTIONS = "Streaming options set without streaming enabled. Set streaming=true to use them."


class FollowStream(Body):
    """RetrieveStreamRequest: follow a run from `starting_after` on."""

    agent_id: str | None = None
    run_id: str | None = None
    otid: str | None = None
    starting_after: int = Field(default=0, ge=0, le=MAX_CURSOR)
    include_pings: bool | None = True


def accept(
    view: ApiView, conversation: Conversation, body: SendMessage, options: TurnOptions
) -> Accepted:
    """Accept the turn, or refuse it before anything is stored."""
    if body.override_model:
        server().models.get_model(view.actor, body.override_model)
    messages = incoming_messages(body)
    handle = body.override_model or conversation.model or conversation.agent.model
    contents = [m.content for m in messages if isinstance(m, IncomingMessage)]
    refuse_images(handle, contents, conversation.agent.owner_id)
    return server().sessions.accept_turn(view.actor, conversation, messages, options)


def send(
    view: ApiView,
    request: Request,
    conversation: Conversation,
    body: SendMessage,
    *,
    streaming: bool,
    run_type: str,
) -> HttpResponse:
    """Accept the turn and answer with its stream or, when it has ended, with its JSON."""
    if not streaming and (body.stream_tokens or body.background):
        raise ValidationFailed(STREAM_OPTIONS)
    options = turn_options(body, run_type=run_type, is_streaming=streaming)
    try:
        accepted = accept(view, conversation, body, options)
    except (PendingApproval, NothingPending, InvalidToolCallIds) as exc:
        if not streaming:
            raise
        return hand_over(request, RefusedStream(exc.text))
    if streaming:
        return hand_over(
            request,
            SseStream(
                accepted.run.pk,
                include_pings=body.include_pings,
                message_types=body.include_return_message_types,
                is_foreground=not body.background,
            ),
        )
    return hand_over(request, JsonAnswer(accepted.run.pk, body.include_return_message_types))


class AgentMessagesView(ApiView):
    """An agent's default conversation."""

    query_model = MessageQuery

    @extend_schema(operation_id="agents_messages_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """List messages, oldest first inside the page."""
        return list_messages_of_agent(self, request, agent_id)

    @extend_schema(operation_id="agents_messages_create", request=SendMessage)
    def post(self, request: Request, agent_id: str) -> HttpResponse:
        """Send messages; JSON unless `streaming` is true."""
        agent = self.agent(agent_id)
        body = parse_body(SendMessage, request)
        conversation = server().sessions.default_conversation(self.actor, agent)
        return send(
            self,
            request,
            conversation,
            body,
            streaming=bool(body.streaming),
            run_type="send_message",
        )


class AgentMessagesStreamView(ApiView):
    """An agent's default conversation, always as a stream."""

    @extend_schema(operation_id="agents_messages_stream", request=SendMessage)
    def post(self, request: Request, agent_id: str) -> HttpResponse:
        """Send messages and stream the turn."""
        agent = self.agent(agent_id)
        body = parse_body(SendMessage, request)
        conversation = server().sessions.default_conversation(self.actor, agent)
        return send(self, request, conversation, body, streaming=True, run_type="send_message")


class AgentMessagesAsyncView(ApiView):
    """An agent's default conversation, answered with the run before it has ended."""

    @extend_schema(operation_id="agents_messages_create_async", request=SendAsync)
    def post(self, request: Request, agent_id: str) -> Response:
        """Send messages and return the run at once; `callback_url` is told when it has ended."""
        agent = self.agent(agent_id)
        body = parse_body(SendAsync, request)
        callback_url = checked_callback_url(body.callback_url)
        conversation = server().sessions.default_conversation(self.actor, agent)
        options = replace(
            turn_options(body, run_type="send_message_async", is_streaming=False),
            background=True,
            callback_url=callback_url,
        )
        return Response(run_state(accept(self, conversation, body, options).run))


def checked_callback_url(given: str | None) -> str:
    """Return the callback of a body, "" without one. Raises ValidationFailed for one that is not allowed."""
    if not given:
        return ""
    try:
        return str(check_url(given))
    except Refused as exc:
        raise failed("url_parsing", ("body", "callback_url"), str(exc), given[:200]) from None


class ConversationMessagesView(ApiView):
    """A conversation's messages."""

    query_model = MessageQuery

    @extend_schema(operation_id="conversations_messages_list")
    def get(self, request: Request, conversation_id: str) -> Response:
        """List messages, newest first."""
        return list_messages(self, request, conversation_id)

    @extend_schema(operation_id="conversations_messages_create", request=SendMessage)
    def post(self, request: Request, conversation_id: str) -> HttpResponse:
        """Send messages; a stream unless `streaming` is false."""
        body = parse_body(SendMessage, request)
        conversation = self.conversation(
            conversation_id, body.agent_id or request.query_params.get("agent_id")
        )
        streaming = body.streaming is not False
        return send(
            self,
            request,
            conversation,
            body,
            streaming=streaming,
            run_type="send_conversation_message",
        )


class ConversationStreamView(ApiView):
    """`/stream`: with messages it sends (as the seed's client does), without it follows (K5)."""

    @extend_schema(operation_id="conversations_messages_stream", request=FollowStream)
    def post(self, request: Request, conversation_id: str) -> HttpResponse:
        """Send, or follow the run of `run_id`, of `otid`, or the one that is active."""
        given = request.data if isinstance(request.data, dict) else {}
        if any(given.get(key) is not None for key in ("messages", "input", "message")):
            body = parse_body(SendMessage, request)
            conversation = self.conversation(
                conversation_id, body.agent_id or request.query_params.get("agent_id")
            )
            return send(
                self,
                request,
                conversation,
                body,
                streaming=True,
                run_type="send_conversation_message",
            )
        follow = parse_body(FollowStream, request)
        conversation = self.conversation(
            conversation_id, follow.agent_id or request.query_params.get("agent_id")
        )
        run = self._followed(conversation, follow)
        return hand_over(
            request,
            SseStream(
                run.pk,
                cursor_of(request, follow.starting_after),
                include_pings=follow.include_pings is not False,
            ),
        )

    def _followed(self, conversation: Conversation, follow: FollowStream) -> Run:
        if follow.run_id:
            run_id = parse_id(ids.RUN, follow.run_id, source="body")
            named = get_run(self.actor, run_id)
            if named.conversation_id != conversation.pk:
                raise NotFound(f"run-{run_id} is not a run of conversation conv-{conversation.pk}.")
            return named
        run = run_of_otid(conversation, follow.otid) if follow.otid else active_run(conversation)
        if run is None:
            raise InvalidArgument(NO_ACTIVE_RUN)
        return run
