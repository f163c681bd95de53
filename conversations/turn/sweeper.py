"""What heals without anybody asking: lost leases, lost hand-overs, missing last events (architecture §5.8).

Each step is a conditional UPDATE, so any number of workers may sweep at once.
"""

from __future__ import annotations

import json
import logging
import uuid
from datetime import timedelta

from redis.exceptions import RedisError

from conversations.models import Run
from conversations.services import runs
from conversations.turn.runner import load_usage
from conversations.wire.frames import terminal_entries
from souveraine.events import log
from souveraine.events.log import Fenced

logger = logging.getLogger(__name__)
ENQUEUE_AGAIN_AFTER = timedelta(
    seconds=6
)  # twice the sweep: one that waits its turn is not flooded
CLOSE_STREAM_AFTER = timedelta(seconds=5)


def sweep() -> list[uuid.UUID]:
    """Heal what can be healed; return the queued runs to hand to the workers."""
    found = [*runs.release_expired(), *runs.overdue(ENQUEUE_AGAIN_AFTER)]
    for run in runs.unclosed(CLOSE_STREAM_AFTER):
        try:
            close(run)
        except RedisError as exc:
            logger.warning("event=stream_not_closed run_id=run-%s error=%r", run.pk, exc)
            break
    return found


def close(run: Run) -> None:
    """Write the terminal events that an ended run's stream lacks. Idempotent."""
    if log.end_seq(run.pk) is None:
        stop_reason = run.stop_reason or "error"
        usage = run.usage or load_usage(run)
        entries = terminal_entries(run.pk, stop_reason, usage, run.error)
        present = _present_types(run)
        missing = [
            e for e in entries if e[0] == "end" or json.loads(e[1])["message_type"] not in present
        ]
        try:
            log.append(run.pk, run.fence + 1, missing, min_seq=run.last_event_seq)
        except Fenced:
            logger.info("event=stream_closed_elsewhere run_id=run-%s", run.pk)
    runs.close_stream(run.pk, log.last_seq(run.pk))


def _present_types(run: Run) -> set[str]:
    """Return the terminal frame types among the stream's last entries."""
    last = log.last_seq(run.pk)
    events = log.read(run.pk, max(0, last - 3), 3)
    terminal = {"stop_reason", "usage_statistics", "error_message"}
    found = {json.loads(e.data).get("message_type") for e in events if e.kind in ("frame", "error")}
    return found & terminal
