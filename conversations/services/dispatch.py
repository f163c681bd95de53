"""Hand a run to the workers. Losing the hand-over loses nothing: the sweeper enqueues it again."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from souveraine.celery import app
from souveraine.lib.replaceable import Replaceable

logger = logging.getLogger(__name__)
TASK = "conversations.run_turn"


def _send(run_id: uuid.UUID) -> None:
    app.send_task(TASK, args=[str(run_id)], ignore_result=True, retry=False)


transport: Replaceable[Callable[[uuid.UUID], None]] = Replaceable(lambda: _send)


def enqueue(run_id: uuid.UUID) -> bool:
    """Put the run into the broker's queue. Returns False (logged) when the broker does not answer."""
    try:
        transport()(run_id)
    except (OperationalError, RedisError, OSError) as exc:
        logger.warning("event=enqueue_failed run_id=run-%s error=%r", run_id, exc)
        return False
    return True


def enqueue_all(run_ids: Iterable[uuid.UUID]) -> None:
    """Enqueue several runs."""
    for run_id in run_ids:
        enqueue(run_id)
