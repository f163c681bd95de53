"""Which routes clients ask for that this server does not have: said once each, so that an operator learns of them."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

logger = logging.getLogger(__name__)
MAX_ROUTES = 200  # told in the life of a process: a stranger must not fill log and memory
MAX_CHARS = 120
IDS = re.compile(
    r"(?:[a-z_]+-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=/)\d+(?=/|$)"
)
ALIAS, REAL = "/latest/", "/v1/"

_told: set[tuple[str, str]] = set()
_lock = threading.Lock()


def note_unknown(method: str, path: str) -> None:
    """Log a route of `/v1` that does not exist, once; ids in it do not count."""
    if not path.startswith(REAL):
        return
    route = IDS.sub("{id}", path[:1000])[:MAX_CHARS]
    entry = (method[:10], route if route.isprintable() else "unprintable")
    with _lock:
        if entry in _told or len(_told) >= MAX_ROUTES:
            return
        _told.add(entry)
    logger.warning("event=unknown_route method=%s route=%s", *entry)


def with_latest(application: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Answer `/latest/…` as `/v1/…`: the old server had all routes under both."""

    async def answer(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(ALIAS):
            raw = scope.get("raw_path") or b""
            scope = {
                **scope,
                "path": REAL + path.removeprefix(ALIAS),
                "raw_path": raw.replace(ALIAS.encode(), REAL.encode(), 1),
            }
        await application(scope, receive, send)

    return answer
