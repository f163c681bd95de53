"""Runs whose worker is gone: given back to the queue, or ended when their cancel was asked for.

A worker that is there answers a cancel within two seconds. One that does not is dead or stalled; the run is
then ended in its name and under its fence, so that whatever it still tries to write is refused.
"""

from __future__ import annotations

import json
import logging
import uuid
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now
from redis.exceptions import RedisError

from conversations.models import Message, Run, RunStatus
from conversations.services import runs
from conversations.services.closing import try_close
from conversations.services.usage import load_usage
from conversations.turn.context import PartialAnswer
from conversations.turn.model_call import keep_partial
from conversations.turn.tool_calls import close_open_calls
from souveraine import ids
from souveraine.events import log
from souveraine.events.log import Fenced

logger = logging.getLogger(__name__)
ANSWER_WITHIN = timedelta(seconds=5)
PAGE = 2000


def end_unanswered_cancels() -> None:
    """End the runs whose worker has not answered a cancel in time."""
    _end_cancelled(Q(cancel_requested_at__lt=Now() - ANSWER_WITHIN))


def release_expired() -> list[uuid.UUID]:
    """Release runs whose lease ran out. Returns the runs now queued."""
    _end_cancelled(Q(lease_expires_at__lt=Now(), cancel_requested_at__isnull=False))
    return runs.release_expired()


def release_owner(prefix: str, *, is_graceful: bool = False) -> list[uuid.UUID]:
    """Release the runs of a worker that is known to be dead, or gives them back. Returns the runs now queued."""
    _end_cancelled(Q(owner__startswith=prefix, cancel_requested_at__isnull=False))
    return runs.release_owner(prefix, is_graceful=is_graceful)


def _end_cancelled(which: Q) -> None:
    for run in Run.objects.filter(which, status=RunStatus.RUNNING).select_related("agent")[:100]:
        try:
            _end(run)
        except Fenced:
            logger.info("event=cancel_answered_late run_id=run-%s", run.pk)
            continue
        run.stop_reason = "cancelled"
        try_close(run)


def end_queued(run: Run) -> bool:
    """End a queued run that an earlier worker had begun, keeping what that one has streamed.

    Returns whether it was still queued. When the process dies on the way, the claim runs out like a worker's.
    """
    claimed = runs.claim(run.pk, f"cancel:{uuid.uuid4().hex[:8]}")
    if claimed is None:
        return False
    _end(claimed)
    return True


def _end(run: Run) -> None:
    partial = _streamed_partial(run)
    with runs.fenced(run):
        if partial is not None:
            keep_partial(run, partial, run.request.get("override_model") or run.agent.model)
        close_open_calls(run)
        runs.finish(run, stop_reason="cancelled", usage=load_usage(run))
    logger.warning("event=run_ended_for_its_worker run_id=run-%s owner=%s", run.pk, run.owner)


def _streamed_partial(run: Run) -> PartialAnswer | None:
    """Return the answer that the run has streamed last but not stored; None when Redis has none."""
    partial: PartialAnswer | None = None
    after = 0
    try:
        while events := log.read(run.pk, after, PAGE):
            for event in events:
                if event.kind == "frame":
                    partial = _take(json.loads(event.data), partial)
            after = events[-1].seq
    except RedisError as exc:
        logger.warning("event=partial_lost run_id=run-%s error=%r", run.pk, exc)
        return None
    if partial is None or Message.objects.filter(id=partial.message_id).exists():
        return None
    return partial


def _take(frame: dict[str, object], partial: PartialAnswer | None) -> PartialAnswer | None:
    kind = frame["message_type"]
    if kind == "souveraine_retracted":
        return None
    if kind not in ("assistant_message", "reasoning_message"):
        return partial
    message_id = ids.parse(ids.MESSAGE, str(frame["id"]))
    if partial is None or partial.message_id != message_id:
        partial = PartialAnswer(message_id, ids.parse(ids.STEP, str(frame["step_id"])))
    if kind == "assistant_message":
        partial.text.append(str(frame["content"]))
    else:
        partial.reasoning.append(str(frame["reasoning"]))
    return partial
