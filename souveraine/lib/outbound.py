"""Requests to addresses that somebody else chose: callbacks, and whatever fetches for an agent.

An address is judged where it is used: the name is resolved, each result is checked, and the connection
goes to the very address that passed, so a name that changes its answer gains nothing. Redirects are not
followed, proxies of the environment are not used, one deadline covers everything, and at most `max_bytes`
of an answer are read. What is not public is refused unless `SOUVERAINE_OUTBOUND_ALLOW` names it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx
from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_URL_CHARS = 2_000
LOCAL_NAMES = re.compile(r"(^|\.)(localhost|local|localdomain|internal|home\.arpa)$")
AZURE_METADATA = ipaddress.ip_address("168.63.129.16")  # the one metadata address that is public
# Tunnels and translations whose end can be a private IPv4 address; nobody publishes a service there.
HIDDEN_IPV4 = tuple(
    ipaddress.ip_network(text)
    for text in (
        "::/96",
        "2002::/16",
        "2001::/32",
        "64:ff9b:1::/48",
        "::ffff:0:0:0/96",
        "fec0::/10",
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
HOW_TO_ALLOW = "The operator can allow it with SOUVERAINE_OUTBOUND_ALLOW."


class Refused(Exception):
    """This address may not be called; the text says why."""


class Unreachable(Exception):
    """The call failed: name, connection, TLS, time; the text says how."""


@dataclass(frozen=True)
class Reply:
    """An answer; `body` as sent (never decompressed), cut at `max_bytes`."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_cut: bool


@dataclass(frozen=True)
class Allowed:
    """What `SOUVERAINE_OUTBOUND_ALLOW` names: networks (or single addresses), and host names."""

    networks: tuple[Network, ...] = ()
    names: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Allowed:
        """Read the setting's entries. Raises ValueError for a network that is none."""
        networks: list[Network] = []
        names: set[str] = set()
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                if "/" in entry or ":" in entry:
                    raise ValueError(f"{entry!r} is neither a network nor a host name") from None
                names.add(entry.lower().rstrip("."))
        return cls(tuple(networks), frozenset(names))

    def includes(self, host: str, address: Address) -> bool:
        """Tell whether the operator allows this host, or this address."""
        return host in self.names or any(
            address in net for net in self.networks if net.version == address.version
        )


def allowed() -> Allowed:
    """Return what the operator allows beside public addresses."""
    return Allowed.parse(settings.CONFIG["SOUVERAINE_OUTBOUND_ALLOW"])


def is_public(address: Address) -> bool:
    """Tell whether the address is one of the public internet, also behind IPv6 forms of IPv4."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if any(address in network for network in HIDDEN_IPV4):
            return False
    return address.is_global and not address.is_multicast and address != AZURE_METADATA


def check_url(text: str) -> httpx.URL:
    """Return the parsed URL. Raises Refused for one that can be told to be wrong without asking DNS."""
    if len(text) > MAX_URL_CHARS:
        raise Refused(f"The URL is longer than {MAX_URL_CHARS} characters.")
    try:
        url = httpx.URL(text)
        host = url.raw_host.decode("ascii").lower().rstrip(".")
    except (httpx.InvalidURL, UnicodeError) as exc:
        raise Refused(f"This is no URL: {exc}") from None
    if url.scheme not in ("http", "https") or not host:
        raise Refused("Give a whole http:// or https:// URL.")
    if url.userinfo:
        raise Refused("A URL with a user name or password in it is not called.")
    if url.port is not None and not 0 < url.port < 65536:
        raise Refused("The port is not a number from 1 to 65535.")
    literal = _literal(host)
    if literal is not None:
        _check(host, literal)
    elif LOCAL_NAMES.search(host) and host not in allowed().names:
        raise Refused(f"{host} is a name of this machine or network. {HOW_TO_ALLOW}")
    return url


def _literal(host: str) -> Address | None:
    """Read an address written as such, also in the forms that only the resolver knows (0x7f.1, 2130706433)."""
    try:
        return _address(host.strip("[]"))
    except ValueError:
        pass
    if not re.fullmatch(r"[0-9a-fx.]+", host):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _address(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _check(host: str, address: Address) -> None:
    if not is_public(address) and not allowed().includes(host, address):
        raise Refused(f"{host} is not a public address ({address}). {HOW_TO_ALLOW}")


class _GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Connects only to addresses that pass, to each in turn; TLS still checks the URL's host name."""

    def __init__(self) -> None:
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **options: Any
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = Unreachable(f"{host} has no address.")
        for text in await _resolve(host, port):
            try:
                _check(host.lower().rstrip("."), _address(text))
                return await self._network.connect_tcp(text, port, *args, **options)
            except (Refused, httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                failure = exc
        raise failure

    async def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        raise Refused("Unix sockets are not called.")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _resolve(host: str, port: int) -> list[str]:
    """Return the host's addresses in the resolver's order, each once."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as exc:
        raise Unreachable(f"{host} cannot be resolved: {exc}") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def request(
    method: str,
    text: str,
    *,
    headers: Mapping[str, str],
    content: bytes = b"",
    timeout_seconds: float = 10.0,
    max_bytes: int = 64 * 1024,
) -> Reply:
    """Call the URL once and return its answer, whatever its status.

    `timeout_seconds` is for all of it: resolving, connecting, sending, reading. Raises Refused (before
    anything is sent) and Unreachable.
    """
    url = check_url(text)
    sent = {"Host": url.netloc.decode("ascii"), "Content-Length": str(len(content)), **headers}
    target = httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            httpcore.AsyncConnectionPool(network_backend=_GuardedNetwork()) as pool,
            pool.stream(method, target, headers=list(sent.items()), content=content) as response,
        ):
            body = await _read(response, max_bytes)
            return Reply(response.status, response.headers, body[:max_bytes], len(body) > max_bytes)
    except TimeoutError:
        raise Unreachable(
            f"{url.host} did not answer within {timeout_seconds:g} seconds."
        ) from None
    except (
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        ssl.SSLError,
        OSError,
    ) as exc:
        raise Unreachable(f"{url.host} could not be called: {exc or type(exc).__name__}") from None


async def _read(response: httpcore.Response, max_bytes: int) -> bytes:
    """Read at most a little more than `max_bytes`."""
    body = bytearray()
    async for piece in response.aiter_stream():
        body += piece
        if len(body) > max_bytes:
            break
    return bytes(body)
