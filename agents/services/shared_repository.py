"""An agent's memory on a volume that several hosts share: the database keeps writers apart as well.

File locks of network volumes cannot be trusted (architecture §7), so with PostgreSQL a writer holds
an advisory lock inside of the file lock. Order: file lock first, so that the writers of one host
wait there, without a database connection each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from memfs import MemoryRepository
from memfs.locking import LOCK_TIMEOUT_SECONDS
from souveraine.lib.advisory_lock import advisory_locks


class SharedRepository(MemoryRepository):
    """A MemoryRepository whose writers are kept apart across hosts too."""

    @contextmanager
    def exclusive(self, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """Keep all other writers out. Errors as MemoryRepository, and DatabaseError."""
        deadline = time.monotonic() + timeout_seconds
        with super().exclusive(timeout_seconds):
            left = max(deadline - time.monotonic(), 0.0)
            with advisory_locks.held(f"memory of agent {self.root.name}", left):
                yield
