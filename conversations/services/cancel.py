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


def cancel_runs(runs: Iterable[Run]) -> dict[str, str]:
    """Ask for the end of live runs; returns {run id: "cancelled"} for those that were live.

    A run that has ended stays as it is and is not named. Those that wait are ended first, or the end of the
    run before would activate them. Idempotent.
    """
    asked = {}

    def place(run: Run) -> tuple[bool, int]:
        return run.status == RunStatus.WAITING, run.first_sequence

    for run in sorted(runs, key=place, reverse=True):
        live = Run.objects.filter(pk=run.pk, status__in=UNENDED)
        if not live.update(cancel_requested_at=Now()):
            continue
        asked[f"run-{run.pk}"] = "cancelled"
        current = Run.objects.select_related("agent").filter(pk=run.pk).first()
        if current is not None and (cancel_waiting(current) or _end_queued(current)):
            current.stop_reason = "cancelled"
            try_close(current)
        else:
            notify_worker(run.pk)
    return asked
