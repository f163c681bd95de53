"""Hand a row to the workers by its id. Losing the hand-over loses nothing: the sweeper enqueues it again."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from souveraine.celery import app
from souveraine.lib.replaceable import Replaceable

logger = logging.getLogger(__name__)


class TaskQueue:
    """The queue of one Celery task that takes an id. `transport` is the seam for tests."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.transport: Replaceable[Callable[[uuid.UUID], None]] = Replaceable(lambda: self._send)

    def _send(self, row_id: uuid.UUID) -> None:
        app.send_task(self.task, args=[str(row_id)], ignore_result=True, retry=False)

    def enqueue(self, row_id: uuid.UUID) -> bool:
        """Put the id into the broker's queue. Returns False (logged) when the broker does not answer."""
        try:
            self.transport()(row_id)
        except (OperationalError, RedisError, OSError) as exc:
            logger.warning("event=enqueue_failed task=%s id=%s error=%r", self.task, row_id, exc)
            return False
        return True

    def enqueue_all(self, row_ids: Iterable[uuid.UUID]) -> None:
        """Enqueue several."""
        for row_id in row_ids:
            self.enqueue(row_id)
