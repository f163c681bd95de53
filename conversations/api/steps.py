"""`/v1/steps` and `/v1/messages/{id}`: single steps and messages."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.base import ApiView, cursor
from conversations.selectors import get_message, get_step, steps_of
from conversations.wire.frames import frames_of
from conversations.wire.states import step_state
from souveraine import ids
from souveraine.api.pagination import PageQuery, page
from souveraine.api.validation import parse_id, parse_query


class StepFilters(PageQuery):
    """Query of the steps list."""

    agent_id: str | None = None
    model: str | None = None


class StepsView(ApiView):
    """The collection."""

    query_model = StepFilters

    @extend_schema(operation_id="steps_list")
    def get(self, request: Request) -> Response:
        """List steps, newest first."""
        query = parse_query(StepFilters, request)
        found = steps_of(self.actor)
        if query.agent_id:
            found = found.filter(agent_id=parse_id(ids.AGENT, query.agent_id, source="query"))
        if query.model:
            found = found.filter(model=query.model)
        after = cursor(ids.STEP, query.after, "after")
        before = cursor(ids.STEP, query.before, "before")
        rows = page(
            found,
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


class MessageView(ApiView):
    """One stored message."""

    @extend_schema(operation_id="messages_retrieve")
    def get(self, request: Request, message_id: str) -> Response:
        """Return the message as an array: one row can be several wire messages."""
        return Response(frames_of(get_message(self.actor, parse_id(ids.MESSAGE, message_id))))
