"""The last events of a run that ended without its worker: cancelled while queued, given up, or killed after finish."""

from __future__ import annotations

import json
import logging

from redis.exceptions import RedisError

from conversations.models import Run
from conversations.services import runs
from conversations.services.usage import load_usage
from conversations.wire.frames import terminal_entries
from souveraine.events import log
from souveraine.events.log import Fenced

logger = logging.getLogger(__name__)
LOST_EVENTS = 100_000  # more than Redis can have lost: no number is given out twice


def close(run: Run) -> None:
    """Write the terminal events that an ended run's stream lacks. Idempotent. Raises RedisError."""
    if log.end_seq(run.pk) is None:
        stop_reason = run.stop_reason or "error"
        usage = run.usage or load_usage(run)
        entries = terminal_entries(run.pk, stop_reason, usage, run.error)
        present = _present_types(run)
        missing = [
            e for e in entries if e[0] == "end" or json.loads(e[1])["message_type"] not in present
        ]
        try:
            log.append(run.pk, run.fence + 1, missing, min_seq=_high_water(run))
        except Fenced:
            logger.info("event=stream_closed_elsewhere run_id=run-%s", run.pk)
    runs.close_stream(run.pk, log.last_seq(run.pk))


def try_close(run: Run) -> bool:
    """Close the stream; False (logged) when Redis does not answer: the sweeper tries again."""
    try:
        close(run)
    except RedisError as exc:
        logger.warning("event=stream_not_closed run_id=run-%s error=%r", run.pk, exc)
        return False
    return True


def _high_water(run: Run) -> int:
    return run.last_event_seq if log.exists(run.pk) else run.last_event_seq + LOST_EVENTS


def _present_types(run: Run) -> set[str]:
    """Return the terminal frame types among the stream's last entries."""
    last = log.last_seq(run.pk)
    events = log.read(run.pk, max(0, last - 3), 3)
    terminal = {"stop_reason", "usage_statistics", "error_message"}
    found = {json.loads(e.data).get("message_type") for e in events if e.kind in ("frame", "error")}
    return found & terminal
