"""`/v1/runs`: what runs and ran."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.base import AgentIdQuery, ApiView, cursor, message_cursor
from conversations.api.bodies import Body
from conversations.api.following import cursor_of
from conversations.api.messages import FollowStream
from conversations.api.streams import SseStream
from conversations.metrics import run_metrics
from conversations.models import Step
from conversations.models.run import UNENDED
from conversations.selectors import (
    get_run,
    get_step,
    list_run_messages,
    pending_conversations,
    run_filters,
    runs_of,
    unended_runs,
)
from conversations.services.approvals import withdraw
from conversations.services.cancel import cancel_runs
from conversations.services.deletion import delete_run
from conversations.wire.frames import frames_of_all
from conversations.wire.states import run_state
from conversations.wire.steps import run_metrics_state, step_state
from souveraine import ids
from souveraine.api.handoff import hand_over
from souveraine.api.pagination import MAX_LIMIT, PageQuery, page
from souveraine.api.validation import parse_body, parse_id, parse_query
from souveraine.errors import Conflict

Status = Literal["created", "running", "completed", "failed", "cancelled"]


class RunFilters(PageQuery):
    """Query of the runs list."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)
    agent_id: str | None = None
    agent_ids: list[str] | None = None
    conversation_id: str | None = None
    statuses: list[Status] | None = None
    background: bool | None = None
    stop_reason: str | None = None
    active: bool = False
    ascending: bool = False


class ActiveFilters(BaseModel):
    """Query of the live runs."""

    agent_id: str | None = None
    background: bool | None = None


class RunMessagesQuery(PageQuery):
    """Query of a run's messages."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)
    order: Literal["asc", "desc"] = "asc"


class RunStepsQuery(PageQuery):
    """Query of a run's steps."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)


def _filters(query: RunFilters) -> dict[str, Any]:
    agent_ids = [*(query.agent_ids or []), *([query.agent_id] if query.agent_id else [])]
    values = query.model_dump()
    values["agent_ids"] = [parse_id(ids.AGENT, text, source="query") for text in agent_ids]
    if query.conversation_id is not None:
        values["conversation_id"] = parse_id(
            ids.CONVERSATION, query.conversation_id, "conversation_id", source="query"
        )
    return values


class RunsView(ApiView):
    """The collection."""

    query_model = RunFilters

    @extend_schema(operation_id="runs_list")
    def get(self, request: Request) -> Response:
        """List runs, newest first."""
        query = parse_query(RunFilters, request)
        after, before = (
            cursor(ids.RUN, text, name)
            for text, name in ((query.after, "after"), (query.before, "before"))
        )
        rows = page(
            run_filters(self.actor, _filters(query)),
            field="created_at",
            ascending=query.order == "asc" or query.ascending,
            limit=query.limit,
            after=get_run(self.actor, after) if after else None,
            before=get_run(self.actor, before) if before else None,
        )
        return Response([run_state(run) for run in rows])


class RunView(ApiView):
    """One run."""

    @extend_schema(operation_id="runs_retrieve")
    def get(self, request: Request, run_id: str) -> Response:
        """Return the run; `metadata.error` says why a failed one failed."""
        return Response(run_state(get_run(self.actor, parse_id(ids.RUN, run_id))))

    @extend_schema(operation_id="runs_delete")
    def delete(self, request: Request, run_id: str) -> Response:
        """Delete the record of an ended run; its messages stay. 409 while it is live."""
        delete_run(get_run(self.actor, parse_id(ids.RUN, run_id)))
        return Response(None)


class ActiveRunsView(ApiView):
    """What is queued or runs now."""

    query_model = ActiveFilters

    @extend_schema(operation_id="runs_list_active")
    def get(self, request: Request) -> Response:
        """List live runs, newest first."""
        query = parse_query(ActiveFilters, request)
        filters = _filters(
            RunFilters(active=True, agent_id=query.agent_id, background=query.background)
        )
        rows = page(
            run_filters(self.actor, filters), field="created_at", ascending=False, limit=MAX_LIMIT
        )
        return Response([run_state(run) for run in rows])


class RunMessagesView(ApiView):
    """The messages of a run."""

    query_model = RunMessagesQuery

    @extend_schema(operation_id="runs_messages_list")
    def get(self, request: Request, run_id: str) -> Response:
        """List the run's messages, oldest first, with the user's own."""
        query = parse_query(RunMessagesQuery, request)
        rows = list_run_messages(
            get_run(self.actor, parse_id(ids.RUN, run_id)),
            ascending=query.order == "asc",
            limit=query.limit,
            after=message_cursor(query.after, "after"),
            before=message_cursor(query.before, "before"),
        )
        return Response(frames_of_all(rows))


class RunStepsView(ApiView):
    """The steps of a run."""

    query_model = RunStepsQuery

    @extend_schema(operation_id="runs_steps_list")
    def get(self, request: Request, run_id: str) -> Response:
        """List the run's steps, newest first."""
        query = parse_query(RunStepsQuery, request)
        run = get_run(self.actor, parse_id(ids.RUN, run_id))
        after, before = (
            cursor(ids.STEP, text, name)
            for text, name in ((query.after, "after"), (query.before, "before"))
        )
        rows = page(
            Step.objects.filter(run=run),
            field="index",
            ascending=query.order == "asc",
            limit=query.limit,
            after=get_step(self.actor, after) if after else None,
            before=get_step(self.actor, before) if before else None,
        )
        return Response([step_state(step) for step in rows])


class RunMetricsView(ApiView):
    """How long a run took."""

    @extend_schema(operation_id="runs_metrics_retrieve")
    def get(self, request: Request, run_id: str) -> Response:
        """Return start and duration, and what the run did meanwhile."""
        run = get_run(self.actor, parse_id(ids.RUN, run_id))
        return Response(run_metrics_state(run, run_metrics(run)))


class RunStreamView(ApiView):
    """The stream of a run."""

    @extend_schema(operation_id="runs_messages_stream", request=FollowStream)
    def post(self, request: Request, run_id: str) -> HttpResponse:
        """Replay the run's events after `starting_after`, then follow it."""
        follow = parse_body(FollowStream, request)
        run = get_run(self.actor, parse_id(ids.RUN, run_id))
        spec = SseStream(
            run.pk,
            cursor_of(request, follow.starting_after),
            include_pings=follow.include_pings is not False,
        )
        return hand_over(request, spec)


class RunUsageView(ApiView):
    """What a run cost."""

    @extend_schema(operation_id="runs_usage_retrieve")
    def get(self, request: Request, run_id: str) -> Response:
        """Return the run's tokens."""
        usage = get_run(self.actor, parse_id(ids.RUN, run_id)).usage
        return Response(
            {
                "completion_tokens": usage.get("completion_tokens", 0),
                "prompt_tokens": usage.get("prompt_tokens", 0),
                "total_tokens": usage.get("total_tokens", 0),
                "prompt_tokens_details": {
                    "cached_tokens": usage.get("cached_input_tokens"),
                    "cache_read_tokens": None,
                    "cache_creation_tokens": None,
                },
                "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning_tokens")},
            }
        )


class CancelBody(Body):
    """CancelAgentRunRequest."""

    run_ids: list[str] | None = None


class AgentCancelView(ApiView):
    """Cancel an agent's runs."""

    @extend_schema(operation_id="agents_messages_cancel", request=CancelBody)
    def post(self, request: Request, agent_id: str) -> Response:
        """Cancel the named runs, or all live ones of the agent, and what they wait for a client to decide."""
        agent = self.agent(agent_id)
        body = parse_body(CancelBody, request)
        runs = runs_of(self.actor).filter(agent=agent, status__in=UNENDED)
        named = None
        if body.run_ids is not None:
            named = [parse_id(ids.RUN, text, source="body") for text in body.run_ids]
            runs = runs.filter(pk__in=named)
        asked = cancel_runs(runs)
        withdraw([conversation for conversation, _ in pending_conversations(agent)], named)
        return Response(asked)


class ConversationCancelView(ApiView):
    """Cancel a conversation's run."""

    query_model = AgentIdQuery

    @extend_schema(operation_id="conversations_cancel", request=None)
    def post(self, request: Request, conversation_id: str) -> Response:
        """Cancel the live run and those that wait behind it, and what waits for a client; 409 when there is nothing."""
        parse_body(Body, request)
        conversation = self.conversation(conversation_id, request.query_params.get("agent_id"))
        asked = cancel_runs(unended_runs(conversation))
        if withdraw([conversation], None) and not asked:
            return Response({})
        if not asked:
            raise Conflict(f"No active runs to cancel for conversation conv-{conversation.pk}")
        return Response(asked)
