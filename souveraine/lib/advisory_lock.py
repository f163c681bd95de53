"""Named locks that hold across hosts: PostgreSQL advisory locks, each on a connection of its own.

Not on the caller's connection: there a lock could not be given back from an aborted transaction,
and one bound to the transaction would be held until its end, in whatever order rows are locked.
A lock dies with its connection, hence with its process. When the database loses the connection
of a holder, the lock is free while that holder still works: a second safeguard, not the only one.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, OperationalError, connection

from souveraine.errors import Unavailable

logger = logging.getLogger(__name__)
KEPT_IDLE = 2  # connections; more are opened while more locks are held at once
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's code for an elapsed lock_timeout


class AdvisoryLocks:
    """The locks of one database. `connect` makes a Django database wrapper for them."""

    def __init__(self, connect: Callable[[], Any] = lambda: connection.copy()) -> None:
        self._connect = connect
        self._idle: list[Any] = []
        self._mutex = threading.Lock()
        self._local = threading.local()

    @contextmanager
    def held(self, name: str, timeout_seconds: float) -> Iterator[None]:
        """Hold the lock `name` for the block; the same thread may take it again inside.

        Raises Unavailable when others keep it for `timeout_seconds`, DatabaseError when the
        database does not answer.
        """
        mine: set[str] = self._local.__dict__.setdefault("names", set())
        if name in mine:  # a second connection of this thread would wait for the first for ever
            yield
            return
        holder = self._take()
        try:
            _lock(holder, name, timeout_seconds)
            mine.add(name)
            try:
                yield
            finally:
                mine.discard(name)
                _unlock(holder, name)
        finally:
            self._give_back(holder)

    def close(self) -> None:
        """Close the idle connections; locks that are held stay held."""
        with self._mutex:
            idle, self._idle = self._idle, []
        for holder in idle:
            holder.close()

    def _take(self) -> Any:
        with self._mutex:
            holder = self._idle.pop() if self._idle else None
        if holder is not None and holder.is_usable():
            return holder
        holder = self._connect()
        holder.inc_thread_sharing()  # used by one thread at a time, but not always the same one
        return holder

    def _give_back(self, holder: Any) -> None:
        with self._mutex:
            if holder.connection is not None and len(self._idle) < KEPT_IDLE:
                self._idle.append(holder)
                return
        holder.close()


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)


def _lock(holder: Any, name: str, timeout_seconds: float) -> None:
    deadline_ms = max(1, int(timeout_seconds * 1000))  # 0 would mean "wait for ever"
    started = time.monotonic()
    try:
        with holder.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{deadline_ms}ms"])
            cursor.execute("SELECT pg_advisory_lock(%s)", [_key(name)])
    except OperationalError as exc:
        if getattr(exc.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            holder.close()
            raise
        waited = time.monotonic() - started
        raise Unavailable(
            f"Another process has held the lock of {name} for {waited:.0f} s. Try again; if it "
            "stays so, look for a hanging server process on another host."
        ) from None


def _unlock(holder: Any, name: str) -> None:
    try:
        with holder.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_key(name)])
    except DatabaseError as exc:
        # The work under the lock is done; with the connection the lock is gone as well.
        logger.warning("event=advisory_lock_lost name=%s error=%r", name, exc)
        holder.close()


advisory_locks = AdvisoryLocks()
