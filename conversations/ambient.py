"""Where a viewer of a conversation stands: the ambient cursor (decision 0006), and the reads behind it.

A cursor is `run's event_number * RUN_SPAN + position`. Positions inside of a run: 0 its start, then the
user's messages, from LIVE_BASE on the numbers of its stream, from STORED_BASE on those of the same
run told out of its rows, and last RUN_END. Below 2**53, so it is exact in JavaScript.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from agents.actor import Actor
from agents.services.keys import is_usable
from conversations.models import Conversation, Message, Run
from conversations.selectors import active_run, conversations_of

RUN_SPAN = 10_000_000
LIVE_BASE = 1_000  # more messages than one send has; those beyond share the last place
STORED_BASE = 5_000_000  # a stream holds 100,000 entries
RUN_END = RUN_SPAN - 1
MAX_CURSOR = 2**53 - 1
REPLAYED_RUNS = 200  # what is older is read faster from the list of messages
RUNS_PER_READ = 20


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
        role__in=[Message.Role.USER, Message.Role.SYSTEM],
    )
    return list(said.order_by("sequence"))


def is_allowed(actor: Actor) -> bool:
    """Tell whether the key with which a stream was opened is still valid."""
    return actor.key_id is None or is_usable(actor.key_id)


def is_there(actor: Actor, conversation_id: uuid.UUID) -> bool:
    """Tell whether the conversation is there for the actor."""
    return conversations_of(actor).filter(pk=conversation_id).exists()
