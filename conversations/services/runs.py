"""The state machine of runs: every transition is one conditional UPDATE whose row count is checked.

    waiting ──activate──► queued ──claim──► running ──finish──► completed | failed | cancelled
                            ▲                  │
                            └──── release ─────┘   (/v1; an /api run becomes `interrupted` and waits for `resume`)

`services.queueing` activates, in the transactions here that end a run.

No other module assigns `status`. A terminal state never changes.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from agents.models import Agent
from conversations.models import Conversation, Message, Run, RunStatus
from conversations.models.run import UNENDED
from conversations.services.queueing import activate_next
from souveraine.events.log import Fenced
from souveraine.lib.crash_points import reached
from souveraine.lib.durability import without_disk_sync

logger = logging.getLogger(__name__)

COMPACTION = "compaction"  # the run type of a run that is no turn
MAX_ATTEMPTS = 3
TERMINAL = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.INTERRUPTED)
STATUS_BY_STOP_REASON = {
    "end_turn": RunStatus.COMPLETED,
    "max_steps": RunStatus.COMPLETED,
    "tool_rule": RunStatus.COMPLETED,
    "requires_approval": RunStatus.COMPLETED,
    "cancelled": RunStatus.CANCELLED,
}


def lease_duration() -> timedelta:
    """Return how long a claim holds without a heartbeat.

    Leases are written and judged by the database's clock: hosts need not agree on the time.
    """
    return timedelta(seconds=settings.CONFIG["SOUVERAINE_LEASE_SECONDS"])


@without_disk_sync()
def claim(run_id: uuid.UUID, owner: str) -> Run | None:
    """Take a queued run for `owner` with a new fence; None when another one has it or it has ended."""
    now = timezone.now()
    claimed = Run.objects.filter(pk=run_id, status=RunStatus.QUEUED).update(
        status=RunStatus.RUNNING,
        owner=owner,
        fence=F("fence") + 1,
        attempts=F("attempts") + 1,
        lease_expires_at=Now() + lease_duration(),
        started_at=now,
    )
    if not claimed:
        return None
    run = Run.objects.select_related("conversation", "agent").get(pk=run_id)
    run.conversation.agent = run.agent
    return run


@contextmanager
def fenced(run: Run) -> Iterator[None]:
    """Open a transaction in which only the run's present owner may write. Raises Fenced otherwise."""
    with transaction.atomic():
        held = (
            Run.objects.select_for_update()
            .filter(pk=run.pk, fence=run.fence, owner=run.owner, status=RunStatus.RUNNING)
            .exists()
        )
        if not held:
            raise _moved_on(run)
        yield


@contextmanager
def fenced_conversation(run: Run) -> Iterator[Conversation]:
    """Open a transaction as `fenced` does, with the conversation locked as well; it has what a turn writes of it."""
    held = Run.objects.select_for_update(of=("self", "conversation")).filter(
        pk=run.pk, fence=run.fence, owner=run.owner, status=RunStatus.RUNNING
    )
    written = ("last_sequence", "calibration", "pending_message_id")
    with transaction.atomic():
        row = (
            held.select_related("conversation")
            .only(*(f"conversation__{name}" for name in written))
            .first()
        )
        if row is None:
            raise _moved_on(run)
        yield row.conversation


def _moved_on(run: Run) -> Fenced:
    return Fenced(f"run-{run.pk}: the lease has moved on from fence {run.fence}")


@without_disk_sync()
def heartbeat(owner: str, run_ids: list[uuid.UUID]) -> dict[uuid.UUID, bool]:
    """Renew the leases of these runs in one UPDATE; return {run id: cancel requested} of what `owner` still holds.

    Only what really runs is named: a run that its worker has dropped must lose its lease.
    """
    live = Run.objects.filter(pk__in=run_ids, owner=owner, status=RunStatus.RUNNING)
    live.update(lease_expires_at=Now() + lease_duration())
    return {
        pk: requested is not None for pk, requested in live.values_list("pk", "cancel_requested_at")
    }


def is_held(run_id: uuid.UUID, owner: str, fence: int) -> bool:
    """Tell whether `owner` still has the run under this fence."""
    return Run.objects.filter(
        pk=run_id, owner=owner, fence=fence, status=RunStatus.RUNNING
    ).exists()


def is_terminal(run_id: uuid.UUID) -> bool:
    """Tell whether the run is in a terminal state (and still there)."""
    return Run.objects.filter(pk=run_id, status__in=TERMINAL).exists()


def has_ended(run_id: uuid.UUID) -> bool:
    """Tell whether the run is in a terminal state, or gone with its agent."""
    return not Run.objects.filter(pk=run_id, status__in=UNENDED).exists()


class CancelRequested(Exception):
    """A cancel was asked for before the run ended, and promised: end it as cancelled."""


def finish(
    run: Run, *, stop_reason: str, usage: dict[str, Any], error: dict[str, Any] | None = None
) -> bool:
    """End a run and write its conversation's counters in one transaction.

    Returns False when it had ended already. Raises CancelRequested when somebody was told that it is
    cancelled and this would end it otherwise, Fenced when another worker owns it.
    """
    now = timezone.now()
    status = STATUS_BY_STOP_REASON.get(stop_reason, RunStatus.FAILED)
    held = Run.objects.filter(pk=run.pk, fence=run.fence, owner=run.owner, status=RunStatus.RUNNING)
    is_cancel = status == RunStatus.CANCELLED
    with transaction.atomic():
        ended = (held if is_cancel else held.filter(cancel_requested_at__isnull=True)).update(
            status=status,
            stop_reason=stop_reason,
            usage=usage,
            error=error,
            completed_at=now,
            lease_expires_at=None,
            ttft_ns=run.ttft_ns,
            total_duration_ns=int((now - run.created_at).total_seconds() * 1e9),
        )
        if not ended:
            if held.exists():
                raise CancelRequested
            if Run.objects.filter(pk=run.pk, status__in=TERMINAL).exists():
                return False
            raise _moved_on(run)
        _count(run, stop_reason, usage)
        activate_next(run.conversation_id)
        reached("in_finish")
    if status == RunStatus.FAILED:
        known = error or {}
        reason = known.get("detail") or known.get("message") or stop_reason
        logger.warning("event=run_failed run_id=run-%s reason=%s", run.pk, str(reason)[:500])
    return True


def _count(run: Run, stop_reason: str, usage: dict[str, Any]) -> None:
    """Count what the run added: user and assistant messages with text (K9), and turns that were answered."""
    now = timezone.now()
    added = (
        Message.objects.filter(
            run=run,
            role__in=[Message.Role.USER, Message.Role.ASSISTANT],
        )
        .exclude(text="")
        .count()
    )
    tokens = usage.get("context_tokens") or 0
    window = run.agent.context_window or 1
    values: dict[str, Any] = {
        "message_count": F("message_count") + added,
        "last_run_completion": now,
        "updated_at": now,
    }
    is_turn = run.request.get("run_type") != COMPACTION
    if is_turn:
        values["last_message_at"] = now
    if is_turn and stop_reason in ("end_turn", "max_steps", "tool_rule"):
        values["turn_count"] = F("turn_count") + 1
    if tokens:
        values |= {"context_tokens": tokens, "context_pressure": min(1.0, tokens / window)}
    Conversation.objects.filter(pk=run.conversation_id).update(**values)
    Agent.objects.filter(pk=run.agent_id).update(
        last_run_completion=now,
        last_run_duration_ms=int((now - run.created_at).total_seconds() * 1000),
        last_stop_reason=stop_reason,
    )


def release(runs: Q, *, is_graceful: bool = False) -> list[uuid.UUID]:
    """Take running runs from their owner: /v1 runs are queued again, /api runs wait for `resume`.

    A run that was tried MAX_ATTEMPTS times since it last got a step further fails with a clear error. A
    `is_graceful` release is no failed attempt: a deploy must not cost a run its life. Returns the runs now queued.
    """
    queued = []
    for run in Run.objects.filter(runs, status=RunStatus.RUNNING).select_related("agent"):
        if run.cancel_requested_at is not None:
            continue  # `turn.orphans` ends it and keeps what it has streamed
        if run.surface == Run.Surface.API:
            _end_lost(run, RunStatus.INTERRUPTED, "", None)
        elif run.attempts >= MAX_ATTEMPTS and not is_graceful:
            _end_lost(
                run,
                RunStatus.FAILED,
                "error",
                {
                    "error_type": "internal_error",
                    "message": "The turn was given up.",
                    "detail": f"The worker ended {run.attempts} times while it ran this turn. Your message is kept; "
                    "send it again, and look into the worker's log when it happens again.",
                },
            )
        elif _requeue(run, run.attempts - is_graceful):
            queued.append(run.pk)
    return queued


def _requeue(run: Run, attempts: int) -> bool:
    return bool(
        Run.objects.filter(pk=run.pk, fence=run.fence, status=RunStatus.RUNNING).update(
            status=RunStatus.QUEUED,
            owner="",
            attempts=attempts,
            lease_expires_at=None,
            enqueued_at=timezone.now(),
        )
    )


def note_progress(run: Run) -> None:
    """Forget a run's earlier attempts, since it got a step further; inside `fenced`.

    Without this a long turn dies of the third restart, and of a neighbour that kills the worker.
    """
    if run.attempts > 1:
        Run.objects.filter(pk=run.pk).update(attempts=1)
        run.attempts = 1


def _end_lost(run: Run, status: RunStatus, stop_reason: str, error: dict[str, Any] | None) -> None:
    with transaction.atomic():
        ended = Run.objects.filter(pk=run.pk, fence=run.fence, status=RunStatus.RUNNING).update(
            status=status,
            stop_reason=stop_reason,
            error=error,
            completed_at=timezone.now(),
            lease_expires_at=None,
        )
        if ended:
            _count(run, stop_reason, {})
            activate_next(run.conversation_id)


def release_expired() -> list[uuid.UUID]:
    """Release runs whose lease ran out. Returns the runs now queued."""
    return release(Q(lease_expires_at__lt=Now()))


def release_owner(prefix: str, *, is_graceful: bool = False) -> list[uuid.UUID]:
    """Release the runs of a worker that is known to be dead, or gives them back. Returns the runs now queued."""
    return release(Q(owner__startswith=prefix), is_graceful=is_graceful)


def overdue(after: timedelta) -> list[uuid.UUID]:
    """Return queued runs nobody claimed for `after` since they were last enqueued, and mark them enqueued."""
    limit = timezone.now() - after
    found = []
    for pk in Run.objects.filter(status=RunStatus.QUEUED, enqueued_at__lt=limit).values_list(
        "pk", flat=True
    )[:500]:
        if Run.objects.filter(pk=pk, status=RunStatus.QUEUED, enqueued_at__lt=limit).update(
            enqueued_at=timezone.now()
        ):
            found.append(pk)
    return found


def cancel_queued(run: Run) -> bool:
    """End a run that no worker has claimed yet. Returns whether it was still queued."""
    with transaction.atomic():
        ended = Run.objects.filter(pk=run.pk, status=RunStatus.QUEUED).update(
            status=RunStatus.CANCELLED, stop_reason="cancelled", completed_at=timezone.now()
        )
        if ended:
            _count(run, "cancelled", {})
            activate_next(run.conversation_id)
    return bool(ended)


def cancel_waiting(run_ids: list[uuid.UUID]) -> set[uuid.UUID]:
    """End runs that wait for their turn, all at once: their messages are never said.

    Returns those that still waited.
    """
    with transaction.atomic():
        waiting = Run.objects.select_for_update().filter(pk__in=run_ids, status=RunStatus.WAITING)
        ended = set(waiting.order_by("pk").values_list("pk", flat=True))
        Run.objects.filter(pk__in=ended).update(
            status=RunStatus.CANCELLED,
            stop_reason="cancelled",
            cancel_requested_at=Now(),
            completed_at=timezone.now(),
        )
    return ended


def cancelled_of(run_ids: list[uuid.UUID]) -> list[uuid.UUID]:
    """Return those of these runs whose cancel was asked for."""
    asked = Run.objects.filter(pk__in=run_ids, cancel_requested_at__isnull=False)
    return list(asked.values_list("pk", flat=True))


@without_disk_sync()
def close_stream(run_id: uuid.UUID, last_event_seq: int) -> None:
    """Note that the run's stream has its terminal events, and the number of the last one."""
    Run.objects.filter(pk=run_id).update(stream_closed=True, last_event_seq=last_event_seq)


def unclosed(older_than: timedelta) -> list[Run]:
    """Return ended runs whose terminal events may be missing."""
    limit = timezone.now() - older_than
    return list(
        Run.objects.filter(
            status__in=TERMINAL, stream_closed=False, completed_at__lt=limit
        ).select_related("conversation")[:200]
    )
