"""Cancel runs: a row that the worker's heartbeat sees, and a notice that makes it fast (architecture §5.9)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db.models.functions import Now

from conversations.models import Run, RunStatus
from conversations.models.run import UNENDED
from conversations.services.approvals import ANSWERS
from conversations.services.closing import try_close
from conversations.services.runs import cancel_queued, cancel_waiting
from conversations.turn import orphans
from souveraine.events.signals import publish

CHANNEL = "cancel"


def notify_worker(run_id: uuid.UUID) -> None:
    """Tell the worker of the run, if it has one, to stop at once."""
    publish(CHANNEL, str(run_id))


def _end_queued(run: Run) -> bool:
    """End a run that is queued, for the first time or again after its worker died. Returns whether it was."""
    has_begun = run.fence > 0 or ANSWERS in run.request  # decided calls are open and get an answer
    return orphans.end_queued(run) if has_begun else cancel_queued(run)


def _end_live(run: Run) -> bool:
    """Ask for the end of a queued or running run. Returns False for one that has ended: it stays as it is."""
    live = Run.objects.filter(pk=run.pk, status__in=UNENDED)
    if not live.update(cancel_requested_at=Now()):
        return False
    current = Run.objects.select_related("agent").filter(pk=run.pk).first()
    if current is not None and _end_queued(current):
        _close(current)
    else:
        notify_worker(run.pk)
    return True


def _close(run: Run) -> None:
    run.stop_reason = "cancelled"
    try_close(run)


def cancel_runs(runs: Iterable[Run]) -> dict[str, str]:
    """Ask for the end of live runs; returns {run id: "cancelled"} for those that were live.

    A run that has ended stays as it is and is not named. Those that wait are ended first, or the end of the
    run before would activate them; their streams are closed last, or the live one would speak on meanwhile. Idempotent.
    """
    runs = list(runs)
    waited = cancel_waiting([run.pk for run in runs if run.status == RunStatus.WAITING])
    ended = [run for run in runs if run.pk not in waited and _end_live(run)]
    never_said = [run for run in runs if run.pk in waited]
    for run in never_said:
        _close(run)
    return {f"run-{run.pk}": "cancelled" for run in (*never_said, *ended)}
