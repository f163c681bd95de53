"""Schedules: when they are due, and firing them exactly once for each time, however many workers look.

An occurrence is (schedule, due_at). Its action is carried out first, under a key made of that, and only then does
the schedule move on; whoever dies between or comes second finds that it was done. Times that were missed
while nothing ran are made up for once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from django.utils import timezone

from agents.actor import KEYLESS_SCOPES, Actor
from agents.models import Agent
from conversations.models import Schedule
from conversations.services.accept import IncomingMessage, TurnOptions, accept_turn
from conversations.services.sessions import default_conversation
from souveraine.errors import Conflict, InvalidArgument, SouveraineError

logger = logging.getLogger(__name__)
MESSAGE = "message"
ONE_TIME, RECURRING, INTERVAL = "one-time", "recurring", "interval"
FIRED_AT_ONCE = 50
TRY_AGAIN_AFTER = timedelta(seconds=30)
CRON_FIELDS = 5
MILLISECONDS_FROM = 1e11  # as seconds that is the year 5138

Action = Callable[[Schedule, datetime], None]
_ACTIONS: dict[str, Action] = {}


def register_action(name: str, action: Action) -> None:
    """Add what schedules can do. `action(schedule, due_at)` may be called twice for one time: it must notice."""
    _ACTIONS[name] = action


def create_schedule(
    agent: Agent, rule: dict[str, Any], payload: dict[str, Any], *, action: str = MESSAGE
) -> Schedule:
    """Create a schedule. Raises InvalidArgument for a rule that never comes true."""
    due = next_due(rule, timezone.now())
    if rule["type"] == ONE_TIME:
        due = moment_of(rule["scheduled_at"])  # a time in the past fires at once
    if due is None:
        raise InvalidArgument("This schedule has no time in the future, so it would never fire.")
    return Schedule.objects.create(
        agent=agent, action=action, rule=rule, payload=payload, due_at=due, wake_at=due
    )


def message_payload(messages: Sequence[IncomingMessage], options: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of scheduled messages."""
    return {"messages": [asdict(message) for message in messages], **options}


def delete_schedule(schedule: Schedule) -> None:
    """Delete a schedule; what it has fired goes on."""
    Schedule.objects.filter(pk=schedule.pk).delete()


def moment_of(stamp: float) -> datetime:
    """Read a time in milliseconds since 1970, or in seconds. Raises InvalidArgument."""
    try:
        return datetime.fromtimestamp(stamp / 1000 if stamp >= MILLISECONDS_FROM else stamp, UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument(
            "scheduled_at must be a time in milliseconds since 1970-01-01 UTC."
        ) from None


def next_due(rule: dict[str, Any], after: datetime) -> datetime | None:
    """Return the first time behind `after`; None when there is none. Raises InvalidArgument for a bad rule."""
    if rule["type"] == ONE_TIME:
        at = moment_of(rule["scheduled_at"])
        return at if at > after else None
    if rule["type"] == INTERVAL:
        return after + timedelta(seconds=rule["interval_seconds"])
    try:
        zone = ZoneInfo(rule.get("timezone") or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"There is no time zone {rule['timezone']!r}. Use a name like Europe/Berlin."
        ) from None
    expression = rule["cron_expression"]
    if len(expression.split()) != CRON_FIELDS:
        raise InvalidArgument(
            "cron_expression needs five fields: minute, hour, day of month, month, day of week."
        )
    try:
        found = next(CronSim(expression, after.astimezone(zone)), None)
    except CronSimError as exc:
        raise InvalidArgument(f"cron_expression {expression!r} is wrong: {exc}.") from None
    return found.astimezone(UTC) if found else None


def fire_due() -> None:
    """Carry out what is due; any number of workers may call it at once."""
    due = Schedule.objects.filter(wake_at__lte=timezone.now()).select_related("agent__owner")
    for schedule in due.order_by("wake_at")[:FIRED_AT_ONCE]:
        _fire(schedule)


def _fire(schedule: Schedule) -> None:
    due_at, action = schedule.due_at, _ACTIONS.get(schedule.action)
    assert due_at is not None
    error = ""
    try:
        if action is None:
            raise InvalidArgument(f"This server has no action {schedule.action!r}.")
        action(schedule, due_at)
    except SouveraineError as exc:
        logger.warning(
            "event=schedule_failed schedule_id=schedule-%s error=%s", schedule.pk, exc.text
        )
        error = exc.message
        if isinstance(exc, Conflict) or exc.http_status >= 500:
            _held(schedule).update(wake_at=timezone.now() + TRY_AGAIN_AFTER, last_error=error)
            return
    _move_on(schedule, error)


def _move_on(schedule: Schedule, error: str) -> None:
    now = timezone.now()
    due = None if schedule.rule["type"] == ONE_TIME else next_due(schedule.rule, now)
    if due is None:
        _held(schedule).delete()
        return
    _held(schedule).update(due_at=due, wake_at=due, last_fired_at=now, last_error=error)


def _held(schedule: Schedule) -> Any:
    return Schedule.objects.filter(pk=schedule.pk, due_at=schedule.due_at)


def send_messages(schedule: Schedule, due_at: datetime) -> None:
    """Send the messages into the agent's default conversation, behind what runs there.

    Its otids name the occurrence, so that it is accepted once.
    """
    actor = Actor(schedule.agent.owner, KEYLESS_SCOPES)
    payload = schedule.payload
    stamp = due_at.astimezone(UTC).strftime("%Y%m%dT%H%M%S%f")
    messages = [
        IncomingMessage(**{**message, "otid": f"schedule-{schedule.pk}-{stamp}-{number}"})
        for number, message in enumerate(payload["messages"])
    ]
    options = TurnOptions(
        run_type="scheduled_message",
        background=True,
        when_busy="queue",
        max_steps=payload.get("max_steps") or TurnOptions.max_steps,
        callback_url=payload.get("callback_url") or "",
        include_return_message_types=payload.get("include_return_message_types"),
    )
    accept_turn(actor, default_conversation(actor, schedule.agent), messages, options)


register_action(MESSAGE, send_messages)
