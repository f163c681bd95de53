"""Ask for a compaction by hand: a run of type `compaction`.

As a run it excludes turns, can be cancelled and survives a crash.
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from redis.exceptions import RedisError

from agents.actor import Actor
from conversations.models import Conversation, Run
from conversations.models.run import ACTIVE, UNENDED
from conversations.services.accept import PING_SEQ, hand_over_run
from conversations.services.runs import COMPACTION
from souveraine import ids
from souveraine.errors import ConversationBusy, NotFound, Unavailable


def request_compaction(actor: Actor, conversation: Conversation, settings: dict[str, Any]) -> Run:
    """Queue a compaction; `settings` go before those of the agent. Returns its run.

    Raises ConversationBusy (with the run's id) while anything runs or waits, NotFound (deleted meanwhile).
    """
    try:
        run = _store(actor, conversation, settings)
    except IntegrityError:  # lost the race for the one live run
        live = Run.objects.filter(conversation=conversation, status__in=ACTIVE).first()
        if live is None:
            raise
        raise ConversationBusy(f"run-{live.pk}") from None
    try:
        hand_over_run(run)
    except RedisError as exc:
        raise Unavailable(
            "The compaction is stored and will be carried out, but Redis does not answer, so its end cannot be waited "
            "for. Look at its run in a while.",
            run_id=f"run-{run.pk}",
        ) from exc
    return run


@transaction.atomic
def _store(actor: Actor, conversation: Conversation, settings: dict[str, Any]) -> Run:
    locked = (
        Conversation.objects.select_for_update()
        .filter(pk=conversation.pk, deleted_at__isnull=True)
        .first()
    )
    if locked is None:
        raise NotFound(
            f"Conversation not found with id='{ids.make(ids.CONVERSATION, conversation.pk)}'"
        )
    ahead = Run.objects.filter(conversation=locked, status__in=UNENDED)
    first = ahead.order_by("first_sequence").first()
    if first is not None:
        raise ConversationBusy(f"run-{first.pk}")
    locked.last_event_number += 1
    locked.last_updated_by = actor.user_id
    locked.save(update_fields=["last_event_number", "last_updated_by"])
    return Run.objects.create(
        conversation=locked,
        agent_id=locked.agent_id,
        request={
            "run_type": COMPACTION,
            "compaction_settings": settings,
            "include_compaction_messages": True,
        },
        # It says nothing, so it is not ahead of what was said: a failed send may still be sent again.
        first_sequence=locked.last_sequence,
        event_number=locked.last_event_number,
        last_event_seq=PING_SEQ,
    )
