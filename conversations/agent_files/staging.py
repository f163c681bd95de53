"""Many messages go in before the import's one transaction, in short ones, where nobody sees them.

One transaction for 20,000 messages would hold up every other writer for seconds. So a placeholder of the
agent and its conversation, both hidden, take the messages; the import then turns them into the real ones,
or they are removed. What a crash leaves is removed by a later import.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.models import Agent
from conversations.models import Conversation, Message
from conversations.services.prompt import ensure_system_message

STAGED_ROWS = 1500  # more than this are not inserted in the import's own transaction
BATCH = 300
PAUSE_SECONDS = (
    0.06  # between two of them: SQLite's waiters look again after up to 100 ms, in no order
)
MARK: dict[str, Any] = {"importing": True}
ABANDONED = timedelta(hours=1)


@contextmanager
def staged(
    agents: Sequence[Agent],
    conversations: Sequence[Conversation],
    rows: Sequence[Sequence[Message]],
) -> Iterator[bool]:
    """Insert the rows of each conversation when they are many; tells whether it did. Undone on failure.

    When it did, the rows of the agents and conversations are there already: save them with `force_update`.
    """
    if sum(map(len, rows)) <= STAGED_ROWS:
        yield False
        return
    remove_abandoned()
    try:
        for agent, conversation in zip(agents, conversations, strict=True):
            _place(agent, conversation)
        for messages in rows:
            for start in range(0, len(messages), BATCH):
                Message.objects.bulk_create(messages[start : start + BATCH])
                time.sleep(PAUSE_SECONDS)
        yield True
    except BaseException:
        _remove(Agent.objects.filter(pk__in=[agent.pk for agent in agents], config=MARK))
        raise


@transaction.atomic
def _place(agent: Agent, conversation: Conversation) -> None:
    placeholder = Agent.objects.create(
        pk=agent.pk,
        owner=agent.owner,
        name=agent.name,
        model=agent.model,
        context_window=agent.context_window,
        hidden=True,
        config=MARK,
    )
    hidden = Conversation.objects.create(
        pk=conversation.pk, agent=placeholder, deleted_at=timezone.now()
    )
    ensure_system_message(hidden)  # its row comes first; the text is compiled again at the end


def remove_abandoned() -> None:
    """Remove what imports have left that died in the middle."""
    _remove(
        Agent.objects.filter(hidden=True, config=MARK, created_at__lt=timezone.now() - ABANDONED)
    )


def _remove(agents: Any) -> None:
    for pk in list(agents.values_list("pk", flat=True)):
        rows = Message.objects.filter(agent_id=pk)
        while batch := list(rows.values_list("pk", flat=True)[:BATCH]):
            Message.objects.filter(pk__in=batch).delete()
        Agent.objects.filter(pk=pk, config=MARK).delete()
