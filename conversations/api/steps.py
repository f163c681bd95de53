"""`/v1/steps` and `/v1/messages/{id}`: single steps and messages."""

from __future__ import annotations

from typing import Annotated, Literal

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.base import ApiView, cursor, message_cursor
from conversations.api.bodies import Body, ShortText
from conversations.metrics import step_metrics
from conversations.selectors import get_step, list_step_messages, step_filters
from conversations.services.feedback import rate_step
from conversations.wire.frames import frames_of_all
from conversations.wire.steps import step_metrics_state, step_state
from souveraine import ids
from souveraine.api.pagination import MAX_LIMIT, PageQuery, page
from souveraine.api.validation import UtcMoment, parse_body, parse_id, parse_query


class StepFilters(PageQuery):
    """Query of the steps list."""

    agent_id: str | None = None
    model: str | None = None
    start_date: UtcMoment | None = None
    end_date: UtcMoment | None = None
    trace_ids: list[str] | None = None
    feedback: Literal["positive", "negative"] | None = None
    has_feedback: bool | None = None
    tags: list[str] | None = None
    project_id: str | None = None


class StepMessagesQuery(PageQuery):
    """Query of a step's messages."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)
    order: Literal["asc", "desc"] = "asc"


class Feedback(Body):
    """ModifyFeedbackRequest; what is left out stays."""

    feedback: Literal["positive", "negative"] | None = None
    tags: Annotated[list[ShortText], Field(max_length=100)] | None = None


class StepsView(ApiView):
    """The collection."""

    query_model = StepFilters

    @extend_schema(operation_id="steps_list")
    def get(self, request: Request) -> Response:
        """List steps, newest first."""
        query = parse_query(StepFilters, request)
        filters = query.model_dump()
        if query.agent_id:
            filters["agent_id"] = parse_id(ids.AGENT, query.agent_id, source="query")
        after = cursor(ids.STEP, query.after, "after")
        before = cursor(ids.STEP, query.before, "before")
        rows = page(
            step_filters(self.actor, filters),
            field="created_at",
            ascending=query.order == "asc",
            limit=query.limit,
            after=get_step(self.actor, after) if after else None,
            before=get_step(self.actor, before) if before else None,
        )
        return Response([step_state(step) for step in rows])


class StepView(ApiView):
    """One step."""

    @extend_schema(operation_id="steps_retrieve")
    def get(self, request: Request, step_id: str) -> Response:
        """Return the step."""
        return Response(step_state(get_step(self.actor, parse_id(ids.STEP, step_id))))


class StepMetricsView(ApiView):
    """How long a step took."""

    @extend_schema(operation_id="steps_metrics_retrieve")
    def get(self, request: Request, step_id: str) -> Response:
        """Return the times of the model call and of its tools."""
        step = get_step(self.actor, parse_id(ids.STEP, step_id))
        return Response(step_metrics_state(step, step_metrics(step)))


class StepMessagesView(ApiView):
    """The messages of a step."""

    query_model = StepMessagesQuery

    @extend_schema(operation_id="steps_messages_list")
    def get(self, request: Request, step_id: str) -> Response:
        """List the step's messages, oldest first."""
        query = parse_query(StepMessagesQuery, request)
        rows = list_step_messages(
            get_step(self.actor, parse_id(ids.STEP, step_id)),
            ascending=query.order == "asc",
            limit=query.limit,
            after=message_cursor(query.after, "after"),
            before=message_cursor(query.before, "before"),
        )
        return Response(frames_of_all(rows))


class StepFeedbackView(ApiView):
    """What a person thinks of a step."""

    @extend_schema(operation_id="steps_feedback_create", request=Feedback)
    def patch(self, request: Request, step_id: str) -> Response:
        """Set `feedback` (null clears it) and `tags`; what is left out stays."""
        body = parse_body(Feedback, request)
        step = get_step(self.actor, parse_id(ids.STEP, step_id))
        return Response(step_state(rate_step(step, body.model_dump(exclude_unset=True))))
