"""Which of the parts that the web process needs cannot be reached."""

from __future__ import annotations

from django.db import DatabaseError, connection
from redis import RedisError

from souveraine.events.connection import sync_client


def unreachable() -> list[str]:
    """Return "the database", "Redis", both or nothing. Each is asked once, within its usual timeout."""
    missing = []
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        connection.close()  # the next request opens a new one
        missing.append("the database")
    try:
        sync_client().ping()
    except (RedisError, OSError):
        missing.append("Redis")
    return missing
