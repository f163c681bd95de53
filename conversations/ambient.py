"""Where a viewer of a conversation stands: the ambient cursor (decision 0006), and the reads behind it.

A cursor is `run's event_number * RUN_SPAN + position`. Positions inside of a run: 0 its start, then the
user's messages, from LIVE_BASE on the numbers of its stream, from STORED_BASE on those of the same
run told out of its rows, and last RUN_END. Below 2**53, so it is exact in JavaScript.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.utils import timezone

from agents.actor import Actor
from agents.models import Agent
from agents.services.keys import is_usable
from conversations.models import Conversation, Message, Run
from conversations.models.run import ACTIVE
from conversations.selectors import active_run, conversations_of

RUN_SPAN = 10_000_000
LIVE_BASE = 1_000  # more messages than one send has; those beyond share the last place
STORED_BASE = 5_000_000  # a stream holds 100,000 entries
RUN_END = RUN_SPAN - 1
MAX_CURSOR = 2**53 - 1
REPLAYED_RUNS = 200  # what is older is read faster from the list of messages
RUNS_PER_READ = 20
RECENT = timedelta(
    seconds=120
)  # longer than a commit takes, and than clocks of several hosts differ
WATCHED_CONVERSATIONS = 200  # of one agent, active at the same time


class Cursor(NamedTuple):
    """What a viewer has seen last: everything of earlier runs, and this run up to `position`."""

    number: int
    position: int

    @classmethod
    def of(cls, value: int) -> Cursor:
        """Read a cursor from the wire."""
        return cls(*divmod(value, RUN_SPAN))

    @property
    def value(self) -> int:
        """The integer on the wire."""
        return self.number * RUN_SPAN + self.position


@dataclass(frozen=True)
class Start:
    """Where a viewer begins. `skipped` says why this is not where it asked to (`history`, `unknown`)."""

    cursor: Cursor
    skipped: str | None = None


def start_of(conversation: Conversation, after: int | None) -> Start:
    """Return where a viewer begins: behind `after`, or with the live run, or at the present."""
    last = conversation.last_event_number
    if after is None:
        live = active_run(conversation)
        number = live.event_number if live else None
        return Start(Cursor(last if number is None else number - 1, RUN_END))
    cursor = Cursor.of(after)
    if cursor.number > last:
        return Start(Cursor(last, RUN_END), "unknown")
    if last - cursor.number > REPLAYED_RUNS:
        return Start(Cursor(last - REPLAYED_RUNS, RUN_END), "history")
    return Start(cursor)


def runs_behind(conversation_id: uuid.UUID, cursor: Cursor) -> list[Run]:
    """Return the next runs of which the viewer has not seen everything, in their order."""
    first = cursor.number if cursor.position < RUN_END else cursor.number + 1
    runs = Run.objects.filter(conversation_id=conversation_id, event_number__gte=first)
    return list(runs.order_by("event_number")[:RUNS_PER_READ])


def input_messages(run: Run) -> list[Message]:
    """Return what was said to the run, oldest first."""
    said = Message.objects.filter(
        run=run,
        sequence__gte=run.first_sequence,
        role__in=[Message.Role.USER, Message.Role.SYSTEM, Message.Role.APPROVAL],
    )
    return list(said.order_by("sequence"))


def is_allowed(actor: Actor) -> bool:
    """Tell whether the key with which a stream was opened is still valid."""
    return actor.key_id is None or is_usable(actor.key_id)


def is_there(actor: Actor, conversation_id: uuid.UUID) -> bool:
    """Tell whether the conversation is there for the actor."""
    return conversations_of(actor).filter(pk=conversation_id).exists()


@dataclass(frozen=True)
class AgentCursor:
    """Where a viewer of all conversations of an agent stands; opaque on the wire.

    `cursors` has the conversations with anything live or recent when the server looked last (`looked_at`);
    in all others the viewer has seen everything. So it does not grow with the agent's history.
    """

    looked_at: datetime
    cursors: Mapping[uuid.UUID, Cursor]

    def token(self) -> str:
        """Write it for the wire."""
        seen = {key.hex: cursor.value for key, cursor in self.cursors.items()}
        text = json.dumps([int(self.looked_at.timestamp() * 1000), seen], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def of(cls, token: str) -> AgentCursor:
        """Read what `token` wrote. Raises ValueError for anything else."""
        try:
            text = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
            milliseconds, seen = json.loads(text)
            cursors = {
                uuid.UUID(hex=key): Cursor.of(_checked(value)) for key, value in seen.items()
            }
            return cls(datetime.fromtimestamp(_checked(milliseconds) / 1000, UTC), cursors)
        except (ValueError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
            raise ValueError("this is no cursor of an agent's stream") from None


def _checked(value: Any) -> int:
    if type(value) is int and 0 <= value <= MAX_CURSOR:
        return value
    raise ValueError


def starts_of(agent: Agent, after: AgentCursor | None) -> tuple[datetime, dict[uuid.UUID, Start]]:
    """Return since when a viewer looks for conversations, and where it begins in those known by now.

    Without `after` that is the present: what was active lately is known, so that it does not come again.
    """
    since = (after.looked_at if after else timezone.now()) - RECENT
    known = list(after.cursors) if after else list(active_conversations(agent.pk, since))
    found = Conversation.objects.filter(agent=agent, deleted_at__isnull=True, pk__in=known)
    values = {key: cursor.value for key, cursor in after.cursors.items()} if after else {}
    return since, {row.pk: start_of(row, values.get(row.pk)) for row in found}


def active_conversations(agent_id: uuid.UUID, since: datetime) -> dict[uuid.UUID, int]:
    """Return {conversation: number of its last run} of those with a live run or anything said since."""
    rows = Conversation.objects.filter(agent_id=agent_id, deleted_at__isnull=True)
    live = Run.objects.filter(agent_id=agent_id, status__in=ACTIVE)
    numbers = dict(
        rows.filter(last_message_at__gte=since)
        .order_by("-last_message_at")
        .values_list("pk", "last_event_number")[:WATCHED_CONVERSATIONS]
    )
    running = rows.filter(pk__in=live.values("conversation_id"))
    return numbers | dict(running.values_list("pk", "last_event_number"))


def first_unseen(conversation_id: uuid.UUID, since: datetime) -> Start | None:
    """Return where a viewer begins who has seen what ended before `since`; None when that is all."""
    runs = Run.objects.filter(conversation_id=conversation_id, event_number__isnull=False)
    newest = runs.order_by("-event_number").values_list("event_number", "completed_at")
    first: int | None = None
    for count, (number, completed_at) in enumerate(newest[: REPLAYED_RUNS + 1]):
        if completed_at is not None and completed_at < since:
            break
        assert number is not None
        if count == REPLAYED_RUNS:
            return Start(Cursor(number, RUN_END), "history")
        first = number
    return None if first is None else Start(Cursor(first - 1, RUN_END))
