"""SQLite for many threads: those of one process queue for the write lock instead of polling for it.

SQLite's own wait sleeps 1 to 100 ms between tries and takes no turns, so that of 32 turns begun at once some waited
three times as long as the others. Threads that first take a lock of the process leave SQLite with one waiter per
process. Writes outside a transaction do not queue; they wait as SQLite does, and so do other processes.
"""

from __future__ import annotations

import threading
from typing import Any

from django.db import OperationalError
from django.db.backends.sqlite3 import base

_queues: dict[str, threading.Lock] = {}


class DatabaseWrapper(base.DatabaseWrapper):
    """One thread's connection; holds the process's place in the queue while it is in a transaction."""

    _held: threading.Lock | None = None

    def _start_transaction_under_autocommit(self) -> None:
        self._take_turn()
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
        except BaseException:
            self._end_turn()
            raise

    def _commit(self) -> None:
        super()._commit()  # type: ignore[misc]  # absent from the stubs
        self._end_turn()  # a commit that failed is rolled back next

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]
        finally:
            self._end_turn()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]
        finally:
            self._end_turn()

    def __del__(self) -> None:
        self._end_turn()  # of a thread that died in a transaction: others must not wait for ever

    def _take_turn(self) -> None:
        options: dict[str, Any] = self.settings_dict["OPTIONS"]
        queue = _queues.setdefault(str(self.settings_dict["NAME"]), threading.Lock())
        if not queue.acquire(timeout=options.get("timeout", 5)):
            raise OperationalError(
                "database is locked: another transaction of this process takes too long"
            )
        self._held = queue

    def _end_turn(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None
