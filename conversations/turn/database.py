"""The ORM from coroutines: a small fixed pool of threads, each keeping its connection."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import DatabaseError, InterfaceError, close_old_connections, connections

P = ParamSpec("P")
T = TypeVar("T")
DATABASE_THREADS = 4

# Renewing leases must not wait behind turns' slow calls, else a busy worker loses all of its runs.
_lease_executor = ThreadPoolExecutor(1, thread_name_prefix="lease-db")
_executor = ThreadPoolExecutor(DATABASE_THREADS, thread_name_prefix="turn-db")


def _call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return function(*args, **kwargs)
    except (DatabaseError, InterfaceError):
        # A connection that failed may be dead; the next call opens a new one.
        connections.close_all()
        raise


async def run_db(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a synchronous database function in the pool. Never holds a transaction over an await."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(
        _executor, functools.partial(_call, function, *args, **kwargs)
    )


async def run_lease_db(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run as `run_db` does, in the thread that is kept for leases."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(
        _lease_executor, functools.partial(_call, function, *args, **kwargs)
    )


def close_pool_connections() -> None:
    """Close the pool's connections (tests: the database is about to be dropped)."""
    barrier = [_lease_executor.submit(connections.close_all)]
    barrier += [_executor.submit(connections.close_all) for _ in range(DATABASE_THREADS * 2)]
    for future in barrier:
        future.result()
    close_old_connections()
