"""The running server: Redis, web and worker under one supervisor, from the held lock to the end.

Runs in the light process that `manage.py serve` becomes (see `__main__`); Django is not in it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from souveraine.supervisor import listen, private_redis
from souveraine.supervisor.commands import ServeOptions
from souveraine.supervisor.lock import DataDirLock, Holder
from souveraine.supervisor.processes import Console
from souveraine.supervisor.redis import PrivateRedis, runtime_dir
from souveraine.supervisor.supervisor import GaveUp, Supervisor

HEALTH_SECONDS = 90.0
GREETING_SECONDS = 3600.0  # it may fetch the demonstration model over a slow line


@dataclass(frozen=True)
class Plan:
    """What `serve` has decided. Holds no secrets: it is visible in the process list.

    `redis_binary` is empty when REDIS_URL in the environment names a Redis that is run elsewhere;
    `left_over_worker` is the pid of a worker whose supervisor was killed, else 0.
    """

    options: ServeOptions
    redis_binary: str
    lock_fd: int
    listener_fd: int
    left_over_worker: int

    def to_json(self) -> str:
        """Write it for the command line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote."""
        document: dict[str, Any] = json.loads(text)
        options = document.pop("options")
        for name in ("base_dir", "data_dir"):
            options[name] = Path(options[name])
        return cls(options=ServeOptions(**options), **document)


class Server:
    """One run of the server. `run` blocks until a stop is requested and everything has ended."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan, self._options, self._console = plan, plan.options, console
        self._lock = DataDirLock(plan.lock_fd, Holder())
        self._listener = socket.socket(fileno=plan.listener_fd)
        self._url = listen.public_url(self._options.host, self._options.port)
        self._environment: dict[str, str] = {}
        self._failure = ""
        self._redis: PrivateRedis | None = None
        self._supervisor = Supervisor(
            console, self._options.data_dir / "logs", self._on_death, self._announce_pids
        )

    def run(self) -> None:
        """Start everything, supervise, stop everything.

        Raises RedisUnavailable or GaveUp when the start fails; all children have ended then.
        """
        try:
            with self._supervisor as supervisor:
                self._start_redis()
                if not supervisor.stop_requests:
                    self._start_rest()
                    supervisor.run()
                self._say_stopping()
        finally:
            if self._redis:  # before the lock is free, since the next server has the same path
                self._redis.remove_socket_dir()
            self._listener.close()
            self._lock.close()
        if self._failure:
            raise GaveUp(self._failure)
        self._console.say("Stopped.")

    def _start_redis(self) -> None:
        if not self._plan.redis_binary:
            self._environment = self._options.environment(os.environ["REDIS_URL"], os.environ)
            private_redis.check_external(self._environment)
            return
        socket_dir = runtime_dir(self._options.data_dir, os.environ)
        redis = PrivateRedis(self._plan.redis_binary, self._options.data_dir, socket_dir)
        self._redis = redis
        self._environment = self._options.environment(redis.url, os.environ)
        private_redis.start(self._supervisor, redis, self._plan.lock_fd)
        private_redis.wait_until_ready(self._supervisor, redis, self._plan.lock_fd, self._console)

    def _start_rest(self) -> None:
        options, environment = self._options, self._environment
        lock_fd = self._plan.lock_fd
        self._supervisor.start(options.web(environment, self._plan.listener_fd, lock_fd))
        self._supervisor.start(options.worker(environment, lock_fd))
        if self._plan.left_over_worker:
            self._release(self._plan.left_over_worker)
        threading.Thread(target=self._watch_health, daemon=True).start()

    def _watch_health(self) -> None:
        deadline = time.monotonic() + HEALTH_SECONDS
        while (left := deadline - time.monotonic()) > 0 and not self._supervisor.stop_requests:
            # The socket listens already, so one request waits for the web process by itself.
            if listen.is_healthy(self._options.host, self._options.port, left):
                self._supervisor.call_soon(self._greet)
                return
            time.sleep(0.1)
        log = self._options.data_dir / "logs" / "web.log"
        if not self._supervisor.stop_requests:
            self._failure = f"The web process is not healthy after {HEALTH_SECONDS:g} s; see {log}."
            self._supervisor.request_stop()

    def _greet(self) -> None:
        self._supervisor.is_healthy = True
        self._console.say(
            f"Souveraine is ready at {self._url}\nData directory: {self._options.data_dir}"
        )
        greeting = self._options.greeting(self._environment)
        self._supervisor.run_once(greeting, GREETING_SECONDS, is_optional=True)

    def _on_death(self, name: str, pid: int) -> None:
        if name == "worker":
            self._release(pid)

    def _release(self, worker_pid: int) -> None:
        self._supervisor.run_once(self._options.release_leases(self._environment, worker_pid))

    def _announce_pids(self) -> None:
        self._lock.announce(self._url, self._supervisor.pids())

    def _say_stopping(self) -> None:
        if not self._failure:
            self._console.say(
                f"Stopping: running turns get up to {self._options.shutdown_timeout_seconds:g} s "
                "to finish (Ctrl-C again: 2 s)."
            )
