"""The command lines and the environment of the children."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from souveraine.supervisor.processes import ChildSpec

DRAIN_MARGIN_SECONDS = 5.0  # what the worker needs for its own end after the turns' deadline
WEB_STOP_SECONDS = 10.0
# Not manage.py: an installed copy has none.
_MANAGE = (sys.executable, "-m", "souveraine")


@dataclass(frozen=True)
class ServeOptions:
    """What the children have in common. `shutdown_timeout_seconds` is what running turns get."""

    base_dir: Path
    data_dir: Path
    host: str
    port: int
    concurrency: int
    shutdown_timeout_seconds: float

    def environment(self, redis_url: str, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the children's environment: ours, with what `serve` has decided."""
        return dict(inherited) | {
            "SOUVERAINE_DATA_DIR": str(self.data_dir),
            "SOUVERAINE_HOST": self.host,
            "SOUVERAINE_PORT": str(self.port),
            "REDIS_URL": redis_url,
            "DJANGO_SETTINGS_MODULE": inherited.get(
                "DJANGO_SETTINGS_MODULE", "souveraine.settings"
            ),
            "PYTHONUNBUFFERED": "1",
        }

    def web(self, environment: Mapping[str, str], listener_fd: int, lock_fd: int) -> ChildSpec:
        """Daphne on the inherited socket. No HTTP time-out: it would cut long answers."""
        command = (
            *(sys.executable, "-m", "daphne", "--verbosity", "0", "--no-server-name"),
            *("--websocket_timeout", "-1", "--fd", str(listener_fd), "souveraine.asgi:application"),
        )
        return ChildSpec(
            "web", command, environment, self.base_dir, (lock_fd, listener_fd), WEB_STOP_SECONDS
        )

    def worker(self, environment: Mapping[str, str], lock_fd: int) -> ChildSpec:
        """One Celery worker with a thread per turn."""
        command = (
            # Run by root (containers), Celery warns of pickled tasks; ours are JSON only.
            *(sys.executable, "-W", "ignore:You're running the worker with superuser"),
            *("-m", "celery", "--quiet", "-A", "souveraine", "worker", "--pool=threads"),
            *("-c", str(self.concurrency), "--without-gossip", "--without-mingle"),
            *("--without-heartbeat", "-l", "WARNING"),
        )
        stop_seconds = self.shutdown_timeout_seconds + DRAIN_MARGIN_SECONDS
        return ChildSpec("worker", command, environment, self.base_dir, (lock_fd,), stop_seconds)

    def release_leases(self, environment: Mapping[str, str], worker_pid: int) -> ChildSpec:
        """The one-off command that gives a dead worker's runs back; harmless when repeated."""
        command = (*_MANAGE, "release_leases", "--pid", str(worker_pid))
        return ChildSpec("release", command, environment, self.base_dir)

    def greeting(self, environment: Mapping[str, str]) -> ChildSpec:
        """The one-off command that looks for a model and says what to do next."""
        command = (*_MANAGE, "serve", "--greet")
        return ChildSpec("serve", command, environment, self.base_dir)


def redis_spec(command: list[str], directory: Path, lock_fd: int) -> ChildSpec:
    """The private Redis; it needs time at its end for syncing its file."""
    return ChildSpec("redis", tuple(command), dict(os.environ), directory, (lock_fd,), 10.0)
