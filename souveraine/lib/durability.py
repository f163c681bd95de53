"""Writes that need not survive a power cut: who works on what, where a graph stands, stream bookkeeping.

On SQLite each commit waits for the disk (`synchronous=FULL`), 4 ms on a common machine. What is found
again by itself after a power cut (a lost claim is a queued run) need not wait: it is atomic and in
order all the same, and reaches the disk with the next full commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def without_disk_sync() -> Iterator[None]:
    """Commit without waiting for the disk inside the block. Does nothing inside a transaction.

    Only for SQLite: PostgreSQL has group commit.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        yield
        return
    _set("NORMAL")
    try:
        yield
    finally:
        if not connection.in_atomic_block:
            _set("FULL")


def _set(level: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA synchronous={level}")
