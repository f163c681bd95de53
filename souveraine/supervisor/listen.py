"""The listening socket, bound by the supervisor and inherited by every web process.

A taken port is known before anything starts, and while a web process restarts, clients wait in the
socket's queue instead of being refused.
"""

from __future__ import annotations

import errno
import http.client
import ipaddress
import socket

BACKLOG = 1024
HEALTH_PATH = "/v1/health/"


class CannotListen(Exception):
    """The address cannot be bound; the text names the setting to change."""


def bind(host: str, port: int) -> socket.socket:
    """Bind and listen on the first address that `host` stands for.

    Raises CannotListen with the reason and what to change.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as exc:
        raise CannotListen(
            f"SOUVERAINE_HOST {host!r} is not an address of this machine ({exc.strerror}). "
            "Use 127.0.0.1 for this machine only, or 0.0.0.0 for all of its addresses."
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # past connections in TIME_WAIT
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as exc:
        listener.close()
        raise CannotListen(_explain(exc, host, port)) from None
    return listener


def _explain(exc: OSError, host: str, port: int) -> str:
    change = f"set SOUVERAINE_PORT (for example SOUVERAINE_PORT={min(port + 1, 65535)})"
    if exc.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use by another program. Stop that one, or {change}."
    if exc.errno == errno.EACCES:
        return f"Port {port} needs more rights than this user has. Choose one above 1023: {change}."
    if exc.errno == errno.EADDRNOTAVAIL:
        return f"This machine has no address {host}. Set SOUVERAINE_HOST to one it has."
    return f"Cannot listen on {host}, port {port}: {exc.strerror}."


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reachable_host(host: str) -> str:
    """Return an address for connecting to a server bound to `host`, which may mean "all"."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def public_url(host: str, port: int) -> str:
    """Return the URL by which this machine reaches a server bound to `host`."""
    reachable = reachable_host(host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def is_healthy(host: str, port: int, timeout_seconds: float) -> bool:
    """Ask the server for its health once, waiting at most `timeout_seconds` for the answer."""
    reachable = reachable_host(host)
    connection = http.client.HTTPConnection(reachable, port, timeout=timeout_seconds)
    try:
        connection.request("GET", HEALTH_PATH)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
