"""Reads of schedules."""

from __future__ import annotations

import uuid

from agents.models import Agent
from conversations.models import Schedule
from conversations.services.schedules import MESSAGE
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.errors import NotFound


def get_schedule(agent: Agent, schedule_id: uuid.UUID) -> Schedule:
    """Return one of the agent's scheduled messages. Raises NotFound."""
    found = Schedule.objects.filter(agent=agent, action=MESSAGE, pk=schedule_id).first()
    if found is None:
        raise NotFound(
            f"Scheduled message '{ids.make(ids.SCHEDULE, schedule_id)}' not found. One that has fired for the "
            "last time is gone."
        )
    return found


def list_schedules(agent: Agent, *, limit: int, after: uuid.UUID | None) -> list[Schedule]:
    """Return one page of the agent's scheduled messages, oldest first. Raises NotFound for an unknown cursor."""
    return page(
        Schedule.objects.filter(agent=agent, action=MESSAGE),
        field="created_at",
        ascending=True,
        limit=limit,
        after=get_schedule(agent, after) if after else None,
    )
