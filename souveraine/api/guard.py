"""Who may call without a key: loopback, by a known host name, not from a foreign page (architecture §11).

The middleware only notes why a keyless call would be refused; `souveraine.api.auth` decides.
"""

from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<v6>[0-9A-Fa-f:.]+)\])(?::[0-9]{1,5})?")
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
FORWARDED = frozenset(
    {
        "HTTP_FORWARDED",
        "HTTP_VIA",
        "HTTP_X_REAL_IP",
        "HTTP_CF_CONNECTING_IP",
        "HTTP_TRUE_CLIENT_IP",
        "HTTP_X_CLIENT_IP",
    }
)
FORWARDED_PREFIX = "HTTP_X_FORWARDED_"


def _host_name(host: str) -> str:
    """Return the name of a Host header, "" for anything but `name`, `name:port` or `[v6]:port`."""
    found = _HOST.fullmatch(host)
    return (found["name"] or found["v6"]).lower() if found else ""


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def origin_refusal(meta: dict[str, Any]) -> str | None:
    """Return why the page that makes this request is a foreign one, or None."""
    origin = meta.get("HTTP_ORIGIN")
    if origin is None:
        return None
    if origin in settings.CONFIG["SOUVERAINE_CORS_ORIGINS"]:
        return None
    if _netloc(origin) == meta.get("HTTP_HOST", "").lower():
        return None
    return f"the page at {origin[:100]} is not this server"


def keyless_refusal(meta: dict[str, Any]) -> str | None:
    """Return why this request must bring a key, or None when loopback trust applies."""
    if not _is_loopback(meta.get("REMOTE_ADDR") or ""):
        return "the caller is not on this machine"
    if any(name in FORWARDED or name.startswith(FORWARDED_PREFIX) for name in meta):
        return "the request came through a proxy"
    known = LOCAL_NAMES | {h.lower() for h in settings.CONFIG["SOUVERAINE_ALLOWED_HOSTS"]}
    if _host_name(meta.get("HTTP_HOST", "")) not in known:
        name = meta.get("HTTP_HOST", "")[:100]
        return f"the host name {name!r} is not known here (SOUVERAINE_ALLOWED_HOSTS names others)"
    if meta.get("HTTP_SEC_FETCH_SITE") == "cross-site" and not meta.get("HTTP_ORIGIN"):
        return "the request came from another site's page"
    return origin_refusal(meta)


def _prepare(request: HttpRequest) -> None:
    request.keyless_refusal = keyless_refusal(request.META)  # type: ignore[attr-defined]
    if request.method in BODY_METHODS and "CONTENT_LENGTH" not in request.META:
        # REST framework takes a body without a length (sent in chunks) for no body.
        request.META["CONTENT_LENGTH"] = str(len(request.body))


@sync_and_async_middleware
def request_guard(
    get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], Any]:
    """Note on each request why a keyless call would be refused (`request.keyless_refusal`)."""
    if inspect.iscoroutinefunction(get_response):

        async def async_guard(request: HttpRequest) -> HttpResponse:
            _prepare(request)
            return await get_response(request)  # type: ignore[no-any-return]

        return async_guard

    def guard(request: HttpRequest) -> Any:
        _prepare(request)
        return get_response(request)

    return guard
