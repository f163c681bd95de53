"""The guard of requests to foreign addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings

from souveraine.lib import outbound


def allow(monkeypatch: pytest.MonkeyPatch, *entries: str) -> None:
    monkeypatch.setitem(django_settings.CONFIG.values, "SOUVERAINE_OUTBOUND_ALLOW", list(entries))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("64:ff9b::808:808", True),
        ("10.1.2.3", False),
        ("100.100.100.200", False),
        ("168.63.129.16", False),
        ("169.254.169.254", False),
        ("192.168.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("::7f00:1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("::ffff:0:7f00:1", False),
        ("2002:7f00:1::", False),
        ("fd00:ec2::254", False),
        ("fe80::1", False),
        ("ff02::1", False),
    ],
)
def test_public_means_public_in_every_notation(address: str, expected: bool) -> None:
    assert outbound.is_public(ipaddress.ip_address(address)) is expected


def test_the_operator_allows_networks_addresses_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, "10.0.0.0/8", "fd00::1", "hooks.lan", "Intranet.Internal")
    for url in ("http://10.2.3.4/", "http://[fd00::1]/", "https://intranet.internal/x"):
        assert str(outbound.check_url(url)) == url
    for url in ("http://11.0.0.0.internal/", "http://192.168.1.1/", "http://[fd00::2]/"):
        with pytest.raises(outbound.Refused):
            outbound.check_url(url)
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/40"):
        outbound.Allowed.parse(["10.0.0.0/40"])


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    server = socket.create_server(("127.0.0.1", 0))
    yield server
    server.close()


def url_of(server: socket.socket, host: str = "127.0.0.1") -> str:
    return f"http://{host}:{server.getsockname()[1]}/x?a=b"


def call(url: str, **options: Any) -> outbound.Reply:
    return asyncio.run(outbound.request("POST", url, headers={}, content=b"hi", **options))


def test_the_checked_address_is_the_one_connected_to(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    """A name that resolves to a public address for the check and to loopback for the call gains nothing."""
    allow(monkeypatch, "127.0.0.1")
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["10.0.0.1", "127.0.0.1"]  # the first one may not be called, the second one may

    monkeypatch.setattr(outbound, "_resolve", resolve)
    requests: list[bytes] = []

    def answer() -> None:
        connection, _ = listener.accept()
        requests.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n")
        connection.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    reply = call(url_of(listener, "hooks.example"))
    thread.join(5)
    assert (reply.status, reply.body, reply.is_cut) == (204, b"", False)
    assert asked == ["hooks.example"]
    assert requests[0].startswith(b"POST /x?a=b HTTP/1.1\r\n")
    assert f"Host: hooks.example:{listener.getsockname()[1]}".encode() in requests[0]


def test_a_large_answer_is_cut_and_a_slow_one_ends_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    allow(monkeypatch, "127.0.0.1")
    stop = threading.Event()

    def flood() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while not stop.is_set():
                connection.sendall(b"x" * 65536)
        except OSError:
            connection.close()

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    reply = call(url_of(listener), max_bytes=1000)
    stop.set()
    thread.join(5)
    assert (len(reply.body), reply.is_cut) == (1000, True)

    def drip() -> None:
        connection, _ = listener.accept()
        try:
            while True:
                connection.sendall(b"H")  # each byte in time, never an answer
                time.sleep(0.02)
        except OSError:
            connection.close()

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    started = time.monotonic()
    with pytest.raises(outbound.Unreachable):
        call(url_of(listener), timeout_seconds=0.2)
    assert time.monotonic() - started < 2
    thread.join(5)


def test_what_does_not_answer_is_unreachable(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    allow(monkeypatch, "127.0.0.1")
    url = url_of(listener)
    listener.close()
    with pytest.raises(outbound.Unreachable, match=r"127\.0\.0\.1 could not be called"):
        call(url)
