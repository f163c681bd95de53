"""What `serve`, `web` and `worker` do before they start: database, keys, Redis, and the last exec."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils.module_loading import import_string

from souveraine.lib.advisory_lock import advisory_locks
from souveraine.lib.program import command_line
from souveraine.supervisor import listen, private_redis
from souveraine.supervisor.commands import ServeOptions
from souveraine.supervisor.processes import ChildSpec
from souveraine.supervisor.redis import RedisUnavailable

HAS_USABLE_KEY = "agents.services.keys.has_usable_key"
DATABASE_SECONDS = 60.0  # a database container that starts beside us
MIGRATION_SECONDS = 1800.0  # what another process may take for the same migrations

Say = Callable[[str], None]


def serve_options(config: Any, host: str = "", port: int = 0) -> ServeOptions:
    """Return what all processes have in common, from the settings; arguments win."""
    return ServeOptions(
        base_dir=settings.BASE_DIR,
        data_dir=settings.DATA_DIR,
        host=host or config["SOUVERAINE_HOST"],
        port=port or config["SOUVERAINE_PORT"],
        concurrency=config["SOUVERAINE_WORKER_CONCURRENCY"],
        shutdown_timeout_seconds=config["SHUTDOWN_TIMEOUT"],
    )


def prepare_database(say: Say, timeout_seconds: float = DATABASE_SECONDS) -> None:
    """Wait for the database and bring it up to date; of several processes one migrates.

    Idempotent, and next to nothing when all is done. Raises CommandError with the reason.
    """
    try:
        _wait_for_database(say, timeout_seconds)
        if _missing_migrations():
            with _one_at_a_time(settings.DATA_DIR):
                if count := _missing_migrations():
                    say(f"Preparing the database ({count} migrations) …")
                    call_command("migrate", interactive=False, verbosity=0)
    except DatabaseError as exc:
        raise CommandError(
            f"The database cannot be used: {str(exc).strip()}. See DATABASE_URL."
        ) from None


def _wait_for_database(say: Say, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    is_told = False
    while True:
        try:
            connection.ensure_connection()
            return
        except OperationalError:
            if connection.vendor == "sqlite" or time.monotonic() > deadline:
                raise
        if not is_told:
            say("Waiting for the database of DATABASE_URL …")
            is_told = True
        time.sleep(0.5)


def _missing_migrations() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


@contextmanager
def _one_at_a_time(data_dir: Path) -> Iterator[None]:
    if connection.vendor == "postgresql":
        with advisory_locks.held("the database's migrations", MIGRATION_SECONDS):
            yield
        return
    with (data_dir / "migrate.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def refuse_open_door(host: str) -> None:
    """Raise CommandError when other machines can reach `host` and no API key would be asked for."""
    if listen.is_loopback(host):
        return
    has_usable_key: Callable[[], bool] = import_string(HAS_USABLE_KEY)
    if not has_usable_key():
        raise CommandError(
            f"{host} can be reached from other machines, and there is no API key yet. Make one "
            f"with `{command_line('createkey')}` and start again, or set SOUVERAINE_HOST=127.0.0.1."
        )


def shared_environment(options: ServeOptions, config: Any) -> dict[str, str]:
    """Return the environment of a process that shares Redis with others, once Redis answers.

    Raises CommandError without REDIS_URL, or when that Redis does not answer.
    """
    if not config["REDIS_URL"]:
        raise CommandError(
            "Several processes need a common Redis: set REDIS_URL (for example "
            f"redis://127.0.0.1:6379/0), or use `{command_line('serve')}`, which has its own."
        )
    environment = options.environment(config["REDIS_URL"], os.environ)
    try:
        private_redis.check_external(environment)
    except RedisUnavailable as exc:
        raise CommandError(str(exc)) from None
    return environment


def become(spec: ChildSpec) -> NoReturn:
    """Replace this process by the program of `spec`, which keeps the process id."""
    for fd in spec.inherit:
        os.set_inheritable(fd, True)
    os.chdir(spec.directory)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(spec.command[0], spec.command, dict(spec.environment))  # noqa: S606
