"""Delete an agent with all its conversations (live turns and their streams end with it), or the record of a run."""

from __future__ import annotations

import logging

from django.db import transaction
from redis.exceptions import RedisError

from agents.actor import Actor
from agents.models import Agent, Block
from agents.services import agents as agent_services
from conversations.models import Conversation, Run
from conversations.models.run import UNENDED
from conversations.services.announce import announce
from conversations.services.cancel import notify_worker
from conversations.services.isolation import isolated_ids
from conversations.wire.frames import terminal_entries
from souveraine.errors import Conflict
from souveraine.events import log

logger = logging.getLogger(__name__)
ABOVE_ANY_FENCE = 1_000_000  # the worker of the deleted run must not add to the ended stream


def delete_agent(actor: Actor, agent: Agent) -> None:
    """Delete the agent and tell everybody who follows a run of it that it has ended.

    The worker of a live run hears of it last: whatever it would still keep is gone with the agent.
    """
    conversation_ids = list(Conversation.objects.filter(agent=agent).values_list("pk", flat=True))
    with transaction.atomic():
        # A worker writes under the lock of its run: after this it is done or finds no run (PostgreSQL).
        live = list(Run.objects.select_for_update().filter(agent=agent, status__in=UNENDED))
        copies = isolated_ids(agent)
        agent_services.delete_agent(actor, agent)
        Block.objects.filter(pk__in=copies).delete()
    for run in live:
        entries = terminal_entries(run.pk, "cancelled", run.usage, None)
        try:
            log.append(run.pk, run.fence + ABOVE_ANY_FENCE, entries, min_seq=run.last_event_seq)
        except (RedisError, log.Fenced) as exc:
            logger.warning("event=stream_not_ended run_id=run-%s error=%r", run.pk, exc)
        notify_worker(run.pk)
    announce(agent.pk, *conversation_ids)


def delete_run(run: Run) -> None:
    """Delete the record of an ended run: its steps, callback and stream. Its messages stay.

    Raises Conflict while it is live. The same otids sent again start a new turn from then on.
    """
    with transaction.atomic():
        live = Run.objects.select_for_update().filter(pk=run.pk, status__in=UNENDED)
        if live.exists():
            raise Conflict(f"run-{run.pk} has not ended. Cancel it first, or wait for its end.")
        Run.objects.filter(pk=run.pk).delete()
    try:
        log.expire(run.pk, 1)
    except RedisError as exc:
        logger.warning("event=stream_not_removed run_id=run-%s error=%r", run.pk, exc)
