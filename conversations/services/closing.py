"""The last events of a run that ended without its worker: cancelled while queued, given up, or killed after finish."""

from __future__ import annotations

import json
import logging

from redis.exceptions import RedisError

from conversations.models import Run
from conversations.services import runs
from conversations.services.streamed import unstreamed
from conversations.services.usage import load_usage
from conversations.wire.frames import dump, terminal_entries
from souveraine.events import log
from souveraine.events.log import Fenced

logger = logging.getLogger(__name__)
LOST_EVENTS = 100_000  # more than Redis can have lost: no number is given out twice


def close(run: Run) -> None:
    """Write what an ended run's stream lacks: text that its worker had not got out, and the terminal events.

    Idempotent, also for two at once. Raises RedisError.
    """
    if log.end_seq(run.pk) is None:
        try:
            _write_end(run)
        except Fenced:
            logger.info("event=stream_closed_elsewhere run_id=run-%s", run.pk)
    runs.close_stream(run.pk, log.last_seq(run.pk))


def _write_end(run: Run) -> None:
    min_seq = _high_water(run)
    # Nothing may come between what is read and what is written.
    log.fence_off(run.pk, run.fence + 1)
    lacking, present = unstreamed(run)
    usage = run.usage or load_usage(run)
    terminal = terminal_entries(run.pk, run.stop_reason or "error", usage, run.error)
    entries = [("frame", dump(frame)) for frame in lacking]
    entries += [
        e for e in terminal if e[0] == "end" or json.loads(e[1])["message_type"] not in present
    ]
    log.append(run.pk, run.fence + 1, entries, min_seq=min_seq)


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
