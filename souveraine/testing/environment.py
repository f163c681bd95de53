"""pytest plugin, loaded with `-p` before settings: a temporary data directory and a private Redis.

Nothing of the person's own server is touched, and nothing outside of this machine is called.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_CLEARED = (
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "BIFROST_BASE_URL",
    "BIFROST_API_KEY",
    "BIFROST_VIRTUAL_KEY",
    "BIFROST_FALLBACKS",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "DATABASE_URL",
    "REDIS_URL",
    "LETTA_PG_URI",
)


def _prepare() -> None:
    folder = tempfile.mkdtemp(prefix="svtest-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in [
        n
        for n in os.environ
        if n.startswith("SOUVERAINE_") and not n.startswith("SOUVERAINE_TEST_")
    ]:
        del os.environ[name]
    for name in _CLEARED:
        os.environ.pop(name, None)
    os.environ["SOUVERAINE_DATA_DIR"] = folder
    os.environ["SOUVERAINE_SECRET_KEY"] = "test-secret"
    os.environ["SOUVERAINE_LOG_LEVEL"] = "WARNING"
    os.environ["OLLAMA_BASE_URL"] = "http://127.0.0.1:9"  # discard: nothing answers
    database = os.environ.get("SOUVERAINE_TEST_DATABASE_URL")
    if database:
        os.environ["DATABASE_URL"] = database


_prepare()
