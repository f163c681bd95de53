"""What a user should know of how a run used its model; kept with the run, shown in its metadata."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from conversations.models import Run

logger = logging.getLogger(__name__)


def add_notices(run: Run, notices: Sequence[str]) -> None:
    """Keep and log the notices that the run does not have yet. Idempotent; only under its fence."""
    kept = list(run.request.get("notices") or [])
    new = [notice for notice in dict.fromkeys(notices) if notice not in kept]
    if not new:
        return
    run.request = {**run.request, "notices": [*kept, *new]}
    Run.objects.filter(pk=run.pk, fence=run.fence).update(request=run.request)
    for notice in new:
        logger.warning("event=model_notice run_id=run-%s notice=%s", run.pk, notice)
