"""What stands in the prompt: compact it, compile its system prompt anew, look at it."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.services.memory import take_up_edits
from conversations.api.base import ApiView
from conversations.api.bodies import Body, CompactionSettingsBody
from conversations.api.streams import JsonAnswer, answer_of
from conversations.composition import server
from conversations.models import Conversation, Run, RunStatus
from conversations.services.compaction_settings import CLOUD_PREFIX
from conversations.services.compactions import request_compaction
from conversations.services.prompt import recompile_system
from conversations.services.window import summary_of
from conversations.wire.context import context_overview
from souveraine import ids
from souveraine.api.handoff import hand_over
from souveraine.api.validation import failed, parse_body, parse_query
from souveraine.errors import Conflict, InvalidArgument, SouveraineError

NOTHING_TO_LEAVE_OUT = (
    "Summarization failed to reduce the number of messages. There is nothing yet that a summary could stand for; "
    "talk on, or choose the mode `all`."
)


class CompactionRequest(Body):
    """CompactionRequest; its settings go before those of the agent. `agent_id` for `default`."""

    agent_id: str | None = None
    compaction_settings: CompactionSettingsBody | None = None


class RecompileQuery(Body):
    """Query of recompile."""

    dry_run: bool = False
    update_timestamp: bool = False


class ContextQuery(Body):
    """Query of the overview."""

    conversation_id: str | None = None


class CompactionAnswer(JsonAnswer):
    """CompactionResponse when the run has ended."""

    def answer(self) -> tuple[int, dict[str, Any]]:
        return compaction_answer(self.run_id)


def compaction_answer(run_id: uuid.UUID) -> tuple[int, dict[str, Any]]:
    """Return status and body for an ended compaction."""
    run = Run.objects.filter(pk=run_id).first()
    summary = summary_of(run) if run else None
    if run is None or (summary is None and run.error):
        return answer_of(run_id, None)
    if summary is not None and summary.compaction:
        return 200, {
            "summary": summary.text,
            "num_messages_before": summary.compaction["messages_count_before"],
            "num_messages_after": summary.compaction["messages_count_after"],
        }
    if run.status == RunStatus.CANCELLED:
        return _refusal(Conflict("The compaction was cancelled; the conversation is as it was."))
    return 400, {"detail": NOTHING_TO_LEAVE_OUT, "code": InvalidArgument.code}


def _refusal(error: SouveraineError) -> tuple[int, dict[str, Any]]:
    return error.http_status, {"detail": error.detail, "code": error.code}


def _compact(
    view: ApiView, request: Request, conversation: Conversation, body: CompactionRequest
) -> HttpResponse:
    given = body.compaction_settings
    settings = given.model_dump(exclude_unset=True) if given else {}
    if settings.get("model") and not settings["model"].startswith(CLOUD_PREFIX):
        server().models.get_model(view.actor, settings["model"])
    run = request_compaction(view.actor, conversation, settings)
    return hand_over(request, CompactionAnswer(run.pk))


class AgentSummarizeView(ApiView):
    """Compact an agent's default conversation."""

    @extend_schema(operation_id="agents_messages_compact", request=CompactionRequest)
    def post(self, request: Request, agent_id: str) -> HttpResponse:
        """Let older messages give way to a summary; answers when it is done. 400 when there is nothing to do."""
        agent = self.agent(agent_id)
        body = parse_body(CompactionRequest, request)
        return _compact(
            self, request, server().sessions.default_conversation(self.actor, agent), body
        )


class ConversationCompactView(ApiView):
    """Compact a conversation."""

    @extend_schema(operation_id="conversations_messages_compact", request=CompactionRequest)
    def post(self, request: Request, conversation_id: str) -> HttpResponse:
        """Let older messages give way to a summary; answers when it is done. 400 when there is nothing to do."""
        body = parse_body(CompactionRequest, request)
        agent_id = body.agent_id or request.query_params.get("agent_id")
        return _compact(self, request, self.conversation(conversation_id, agent_id), body)


def _recompile(request: Request, conversation: Conversation) -> Response:
    query = parse_query(RecompileQuery, request)
    take_up_edits(conversation.agent)
    text = recompile_system(
        conversation, is_dry_run=query.dry_run, is_forced=query.update_timestamp
    )
    return Response(text)


class AgentRecompileView(ApiView):
    """The system prompt of an agent's default conversation."""

    query_model = RecompileQuery

    @extend_schema(operation_id="agents_recompile", request=None)
    def post(self, request: Request, agent_id: str) -> Response:
        """Compile it anew from the present memory and return it; `dry_run` stores nothing."""
        parse_body(Body, request)
        agent = self.agent(agent_id)
        return _recompile(request, server().sessions.default_conversation(self.actor, agent))


class ConversationRecompileView(ApiView):
    """The system prompt of a conversation."""

    query_model = RecompileQuery

    @extend_schema(operation_id="conversations_recompile", request=CompactionRequest)
    def post(self, request: Request, conversation_id: str) -> Response:
        """Compile it anew from the present memory and return it; `dry_run` stores nothing."""
        body = parse_body(CompactionRequest, request)
        agent_id = body.agent_id or request.query_params.get("agent_id")
        return _recompile(request, self.conversation(conversation_id, agent_id))


class AgentContextView(ApiView):
    """What fills the window."""

    query_model = ContextQuery

    @extend_schema(operation_id="agents_context_retrieve")
    def get(self, request: Request, agent_id: str) -> Response:
        """Return the parts of the prompt with their tokens: of the default conversation, or of one."""
        agent = take_up_edits(self.agent(agent_id))
        query = parse_query(ContextQuery, request)
        conversation = self.conversation(
            query.conversation_id or "default", ids.make(ids.AGENT, agent.pk)
        )
        if conversation.agent_id != agent.pk:
            raise failed(
                "value_error",
                ("query", "conversation_id"),
                "This conversation belongs to another agent.",
            )
        return Response(context_overview(agent, conversation))
