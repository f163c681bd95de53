"""Sends that wait for the turns before them (`"when_busy": "queue"`), and how the next one gets its turn.

A waiting run keeps its messages in `request["messages"]`; they become rows, in sequence, when it is activated.
That happens in the transaction that ends the run before it. Its `first_sequence` is its place until then.
"""

from __future__ import annotations

import logging
import uuid
from functools import partial

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from conversations.models import Conversation, Message, Run, RunStatus
from conversations.models.run import ACTIVE
from conversations.services.announce import announce
from conversations.services.dispatch import enqueue
from souveraine.errors import QueueFull

logger = logging.getLogger(__name__)
MESSAGES = "messages"
CONVERSATIONS_PER_SWEEP = 100


def is_waiting_for_approval(conversation: Conversation) -> bool:
    """Tell whether a tool call waits for a client: nothing else may run before it is answered."""
    return conversation.pending_message_id is not None


def waiting_runs(conversation_id: uuid.UUID) -> QuerySet[Run]:
    """Return the waiting runs of a conversation, next one first."""
    return Run.objects.filter(conversation_id=conversation_id, status=RunStatus.WAITING).order_by(
        "first_sequence"
    )


def take_place(conversation: Conversation) -> int:
    """Return the place of one more waiting run; the caller holds the conversation's lock.

    Raises QueueFull with the numbers.
    """
    waiting = waiting_runs(conversation.pk)
    count, limit = waiting.count(), settings.CONFIG["SOUVERAINE_QUEUE_LIMIT"]
    if count >= limit:
        raise QueueFull(count, limit)
    newest = waiting.aggregate(newest=Max("first_sequence"))["newest"] or 0
    return int(max(newest, conversation.last_sequence)) + 1


def activate_next(conversation_id: uuid.UUID) -> None:
    """Queue the next waiting run, if there is one, nothing is live and no approval is pending.

    Part of the caller's transaction, which has written the conversation's row, so that a send which finds the
    run before it still live either is seen here or waits for that lock. Hands it over after the commit.
    """
    waiting = waiting_runs(conversation_id)
    if not waiting.exists():
        return
    conversation = Conversation.objects.select_for_update().get(pk=conversation_id)
    if conversation.deleted_at is not None:
        waiting.update(
            status=RunStatus.CANCELLED, stop_reason="cancelled", completed_at=timezone.now()
        )
        return
    if is_waiting_for_approval(conversation):
        return
    while (run := waiting.first()) is not None and not _activate(conversation, run):
        pass  # that one was cancelled just now


def _activate(conversation: Conversation, run: Run) -> bool:
    request = {key: value for key, value in run.request.items() if key != MESSAGES}
    if not Run.objects.filter(pk=run.pk, status=RunStatus.WAITING).update(
        status=RunStatus.QUEUED,
        first_sequence=conversation.last_sequence + 1,
        event_number=conversation.last_event_number + 1,
        request=request,
        enqueued_at=timezone.now(),
    ):
        return False
    rows = [
        Message(
            conversation=conversation,
            agent_id=run.agent_id,
            run=run,
            sequence=conversation.last_sequence + number,
            **fields,
        )
        for number, fields in enumerate(run.request[MESSAGES], 1)
    ]
    Message.objects.bulk_create(rows)
    conversation.last_sequence += len(rows)
    conversation.last_message_at = conversation.updated_at = timezone.now()
    conversation.last_event_number += 1
    conversation.save(
        update_fields=["last_sequence", "last_event_number", "last_message_at", "updated_at"]
    )
    transaction.on_commit(partial(_hand_over, run))
    return True


def _hand_over(run: Run) -> None:
    announce(run.conversation_id, run.agent_id)
    enqueue(run.pk)


def activate_stranded() -> None:
    """Activate where something waits although nothing runs: an approval was settled, or a row was deleted.

    Several sweepers may do it at once.
    """
    stranded = (
        Run.objects.filter(status=RunStatus.WAITING, conversation__pending_message_id__isnull=True)
        .exclude(conversation__runs__status__in=ACTIVE)
        .values_list("conversation_id", flat=True)
        .distinct()
    )
    for conversation_id in list(stranded[:CONVERSATIONS_PER_SWEEP]):
        try:
            with transaction.atomic():
                Conversation.objects.select_for_update().get(pk=conversation_id)
                if not Run.objects.filter(
                    conversation_id=conversation_id, status__in=ACTIVE
                ).exists():
                    activate_next(conversation_id)
        except (IntegrityError, Conversation.DoesNotExist) as exc:
            logger.info("event=not_activated conversation_id=conv-%s %r", conversation_id, exc)
