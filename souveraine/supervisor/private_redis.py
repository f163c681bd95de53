"""Brings Redis up under the supervisor, or checks the one that REDIS_URL names."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping

from souveraine.supervisor.commands import redis_spec
from souveraine.supervisor.processes import Console
from souveraine.supervisor.redis import PrivateRedis, RedisUnavailable
from souveraine.supervisor.supervisor import Supervisor

READY_SECONDS = 60.0  # loading a large append-only file takes time
EXTERNAL_SECONDS = 15.0
POLL_SECONDS = 0.01


def start(supervisor: Supervisor, redis: PrivateRedis, lock_fd: int) -> None:
    """Start the private server without waiting for it."""
    supervisor.start(redis_spec(redis.command(), redis.directory.parent, lock_fd))


def wait_until_ready(
    supervisor: Supervisor,
    redis: PrivateRedis,
    lock_fd: int,
    console: Console,
    seconds: float = READY_SECONDS,
) -> None:
    """Wait for PING. Files it cannot read (damaged, or of a newer Redis) are moved aside.

    Raises RedisUnavailable with the end of its log.
    """
    deadline = time.monotonic() + seconds
    is_second_try = False
    while not redis.is_ready():
        if supervisor.stop_requests:
            return
        if supervisor.has_ended("redis"):
            supervisor.forget("redis")
            words = redis.last_words()
            moved = None if is_second_try else redis.set_aside()
            if moved is None:
                raise RedisUnavailable(
                    f"Redis ({redis.binary}) ended at once. Its last words:\n{words}"
                )
            console.say(
                f"Redis ({redis.binary}) could not start with the files it found; they are now in "
                f"{moved} and it starts empty. No conversation or memory is lost by this. "
                f"It said:\n{words}"
            )
            is_second_try = True
            start(supervisor, redis, lock_fd)
        if time.monotonic() > deadline:
            raise RedisUnavailable(
                f"Redis ({redis.binary}) did not answer within {seconds:g} s; see {redis.log}."
            )
        time.sleep(POLL_SECONDS)


def check_external(environment: Mapping[str, str], seconds: float = EXTERNAL_SECONDS) -> None:
    """Wait until the Redis of `environment["REDIS_URL"]` answers.

    Raises RedisUnavailable with the reason; the URL itself may hold a password and is not shown.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = subprocess.run(
            [sys.executable, "-m", "souveraine.supervisor.ping"],
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode == 0:
            return
        if time.monotonic() > deadline:
            reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise RedisUnavailable(
                f"The Redis of REDIS_URL does not answer: {reason} Start it, correct REDIS_URL, "
                "or unset it to use a private one."
            )
        time.sleep(0.5)
