"""`/v1/agents/{id}/schedule`: messages that are sent at a time, once or again and again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.base import ApiView, cursor
from conversations.api.bodies import Body, JSONObject, SendMessage, ShortText
from conversations.api.incoming import incoming_messages
from conversations.api.messages import checked_callback_url
from conversations.models import Schedule
from conversations.schedule_selectors import get_schedule, list_schedules
from conversations.services import schedules as services
from conversations.services.accept import IncomingMessage
from conversations.wire.states import moment
from souveraine import ids
from souveraine.api.pagination import MAX_LIMIT
from souveraine.api.validation import failed, parse_body, parse_id, parse_query


class OneTime(Body):
    """Once, at a time in milliseconds since 1970."""

    type: Literal["one-time"] = "one-time"
    scheduled_at: Annotated[float, Field(gt=0, lt=1e15, allow_inf_nan=False)]


class Recurring(Body):
    """Again and again, as a cron expression says; in UTC unless `timezone` names another zone."""

    type: Literal["recurring"]
    cron_expression: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    timezone: ShortText | None = None


class Interval(Body):
    """Again and again, so many seconds after the last time."""

    type: Literal["interval"]
    interval_seconds: Annotated[int, Field(ge=60, le=366 * 86_400)]


class ScheduleCreate(Body):
    """What to send, and when."""

    messages: Annotated[list[JSONObject], Field(min_length=1, max_length=100)]
    schedule: OneTime | Recurring | Interval
    callback_url: str | None = None
    include_return_message_types: list[ShortText] | None = None
    max_steps: Annotated[int, Field(ge=1, le=1000)] | None = None


class ScheduleFilters(BaseModel):
    """Query of the list."""

    after: str | None = None
    limit: int = Field(default=50, ge=0, le=MAX_LIMIT - 1)


def schedule_state(schedule: Schedule) -> dict[str, Any]:
    """Return ScheduleRetrieveResponse, with when it last fired and what was wrong then."""
    payload = schedule.payload
    message = {"messages": [_message_state(entry) for entry in payload["messages"]]}
    for name in ("callback_url", "include_return_message_types", "max_steps"):
        if payload.get(name) is not None:
            message[name] = payload[name]
    return {
        "id": ids.make(ids.SCHEDULE, schedule.pk),
        "agent_id": ids.make(ids.AGENT, schedule.agent_id),
        "message": message,
        "next_scheduled_time": moment(schedule.due_at),
        "schedule": schedule.rule,
        "last_fired_at": moment(schedule.last_fired_at),
        "last_error": schedule.last_error or None,
    }


def _message_state(entry: dict[str, Any]) -> dict[str, Any]:
    given = {"content": entry["content"] or entry["text"], "role": entry["role"]}
    more = {name: entry[name] for name in ("name", "otid", "sender_id") if entry.get(name)}
    return {**given, **more, "type": "message"}


class AgentSchedulesView(ApiView):
    """An agent's scheduled messages."""

    query_model = ScheduleFilters

    @extend_schema(operation_id="agents_schedule_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """List them, oldest first."""
        query = parse_query(ScheduleFilters, request)
        found = list_schedules(
            self.agent(agent_id),
            limit=query.limit + 1 if query.limit else 0,
            after=cursor(ids.SCHEDULE, query.after, "after"),
        )
        return Response(
            {
                "has_next_page": len(found) > query.limit,
                "scheduled_messages": [schedule_state(s) for s in found[: query.limit]],
            }
        )

    @extend_schema(operation_id="agents_schedule_create", request=ScheduleCreate)
    def post(self, request: Request, agent_id: str) -> Response:
        """Schedule messages for the agent's default conversation."""
        agent = self.agent(agent_id)
        body = parse_body(ScheduleCreate, request)
        messages = incoming_messages(SendMessage(messages=body.messages))
        plain = [message for message in messages if isinstance(message, IncomingMessage)]
        if len(plain) < len(messages):
            raise failed("value_error", ("body", "messages"), "Approvals cannot be scheduled")
        options = {
            "callback_url": checked_callback_url(body.callback_url) or None,
            "include_return_message_types": body.include_return_message_types,
            "max_steps": body.max_steps,
        }
        rule = body.schedule.model_dump(exclude_none=True)
        payload = services.message_payload(plain, options)
        schedule = services.create_schedule(agent, rule, payload)
        return Response(
            {
                "id": ids.make(ids.SCHEDULE, schedule.pk),
                "next_scheduled_at": moment(schedule.due_at),
            }
        )


class AgentScheduleView(ApiView):
    """One of them."""

    def schedule(self, agent_id: str, text: str) -> Schedule:
        """Return the schedule of the path. Raises ValidationFailed or NotFound."""
        return get_schedule(
            self.agent(agent_id), parse_id(ids.SCHEDULE, text, "scheduled_message_id")
        )

    @extend_schema(operation_id="agents_schedule_retrieve")
    def get(self, request: Request, agent_id: str, scheduled_message_id: str) -> Response:
        """Return it."""
        return Response(schedule_state(self.schedule(agent_id, scheduled_message_id)))

    @extend_schema(operation_id="agents_schedule_delete")
    def delete(self, request: Request, agent_id: str, scheduled_message_id: str) -> Response:
        """Delete it; a turn that it has started goes on."""
        services.delete_schedule(self.schedule(agent_id, scheduled_message_id))
        return Response({"success": True})
