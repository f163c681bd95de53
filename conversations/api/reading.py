"""Database reads of the pumps, which are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

P = ParamSpec("P")
T = TypeVar("T")
DATABASE_THREADS = 4

_executor = ThreadPoolExecutor(DATABASE_THREADS, thread_name_prefix="stream-db")


async def read(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read from the database off the loop; Django's own thread for that is one for the whole process."""

    def call() -> T:
        close_old_connections()  # only what has failed, or no longer answers
        return function(*args, **kwargs)

    return await asyncio.get_running_loop().run_in_executor(_executor, call)
