from __future__ import annotations

import http.server
import socket
import threading

import pytest

from souveraine.supervisor import listen


def test_a_taken_port_is_named_with_the_setting_that_changes_it() -> None:
    with listen.bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            listen.CannotListen, match=rf"Port {port} on 127.0.0.1 .*SOUVERAINE_PORT"
        ):
            listen.bind("127.0.0.1", port)
        with pytest.raises(listen.CannotListen, match="SOUVERAINE_PORT"):
            listen.bind("0.0.0.0", port)
    listen.bind("127.0.0.1", port).close()


def test_an_address_of_another_machine_is_refused_with_the_reason() -> None:
    with pytest.raises(listen.CannotListen, match="SOUVERAINE_HOST"):
        listen.bind("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("localhost", True), ("::1", True), ("", False),
     ("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("localhost.example", False)],
)  # fmt: skip
def test_only_loopback_counts_as_loopback(host: str, expected: bool) -> None:
    assert listen.is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8283"), ("0.0.0.0", "http://127.0.0.1:8283"),
     ("::", "http://[::1]:8283"), ("box", "http://box:8283")],
)  # fmt: skip
def test_the_url_can_be_opened_on_this_machine(host: str, url: str) -> None:
    assert listen.public_url(host, 8283) == url


@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False)])
def test_health_is_what_the_server_says(status: int, expected: bool) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v1/health/" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        assert listen.is_healthy("127.0.0.1", server.server_port, 5) is expected
        thread.join(5)


def test_a_server_that_is_not_there_is_not_healthy() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert listen.is_healthy("127.0.0.1", unused.getsockname()[1], 1) is False
