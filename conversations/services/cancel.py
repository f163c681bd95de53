"""Cancel runs: a row that the worker's heartbeat sees, and a notice that makes it fast (architecture §5.9)."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils import timezone

from conversations.models import Run, RunStatus
from conversations.models.run import ACTIVE
from conversations.services.runs import cancel_queued
from souveraine.events.signals import publish

CHANNEL = "cancel"


def cancel_runs(runs: Iterable[Run]) -> dict[str, str]:
    """Ask for the end of live runs; returns {run id: "cancelled"} for those that were live.

    A run that has ended stays as it is and is not named. Idempotent.
    """
    asked = {}
    for run in runs:
        live = Run.objects.filter(pk=run.pk, status__in=ACTIVE)
        if not live.update(cancel_requested_at=timezone.now()):
            continue
        asked[f"run-{run.pk}"] = "cancelled"
        current = Run.objects.filter(pk=run.pk).first()
        if current is not None and current.status == RunStatus.QUEUED:
            cancel_queued(current)  # the sweeper writes its last events
        publish(CHANNEL, str(run.pk))
    return asked
