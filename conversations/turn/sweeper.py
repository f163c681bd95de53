"""What heals without anybody asking: lost leases, lost hand-overs, missing last events (architecture §5.8).

Each step is a conditional UPDATE, so any number of workers may sweep at once.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from conversations.services import approvals, runs
from conversations.services.closing import try_close
from conversations.services.queueing import activate_stranded
from conversations.turn import orphans

ENQUEUE_AGAIN_AFTER = timedelta(
    seconds=6
)  # twice the sweep: one that waits its turn is not flooded
CLOSE_STREAM_AFTER = timedelta(seconds=5)


def sweep() -> list[uuid.UUID]:
    """Heal what can be healed; return the queued runs to hand to the workers."""
    orphans.end_unanswered_cancels()
    approvals.expire()
    activate_stranded()
    found = [*orphans.release_expired(), *runs.overdue(ENQUEUE_AGAIN_AFTER)]
    for run in runs.unclosed(CLOSE_STREAM_AFTER):
        if not try_close(run):
            break
    return found
