"""`python -m souveraine.supervisor.ping`: exit 0 when the Redis of REDIS_URL answers.

A process of its own, because the client library would stay in the supervisor's memory for ever.
"""

from __future__ import annotations

import os
import sys

import redis

TIMEOUT_SECONDS = 3.0


def main() -> int:
    """Ping once; the reason of a failure goes to standard error, without the URL's password."""
    try:
        client = redis.Redis.from_url(
            os.environ["REDIS_URL"],
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
        )
        client.ping()
    except (redis.RedisError, ValueError, OSError) as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
