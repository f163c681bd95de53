"""What happened in a run, one span for each model call and tool call."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.base import ApiView
from conversations.metrics import run_trace
from conversations.selectors import get_run, get_step
from souveraine import ids
from souveraine.api.validation import parse_id, parse_query


class TraceQuery(BaseModel):
    """Query of a trace."""

    limit: int = Field(default=1000, ge=0, le=1000)


class RunTraceView(ApiView):
    """The spans of a run."""

    query_model = TraceQuery

    @extend_schema()
    def get(self, request: Request, run_id: str) -> Response:
        """List the run's model calls and tool calls in the order of their starts."""
        query = parse_query(TraceQuery, request)
        run = get_run(self.actor, parse_id(ids.RUN, run_id))
        return Response(run_trace(run, query.limit))


class StepTraceView(ApiView):
    """The request and the response of a model call."""

    @extend_schema()
    def get(self, request: Request, step_id: str) -> Response:
        """Return null: what goes to and comes from a provider is not kept, only the messages made of it."""
        get_step(self.actor, parse_id(ids.STEP, step_id))
        return Response(None)
