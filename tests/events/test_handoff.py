from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.asgi import get_asgi_application
from django.test import RequestFactory

from souveraine.api.handoff import hand_over, handoff, limit_body
from souveraine.asgi import application
from souveraine.events import log, sse
from souveraine.testing.asgi import call, open_request
from tests.events.views import STATE, Ticks

LIMIT_BYTES = 10_000


@pytest.fixture
def site(settings: Any) -> Iterator[Any]:
    settings.ROOT_URLCONF = "tests.events.views"
    settings.MIDDLEWARE = ["tests.events.views.mark"]
    STATE.clear()
    yield limit_body(handoff(get_asgi_application()), LIMIT_BYTES)
    STATE.clear()


async def test_it_works(site: Any) -> None:
    response = await call(site, "POST", "/ticks?n=3", json={"a": 1})
    assert response.status == 200
    assert response.content == b"data: 0\n\ndata: 1\n\ndata: 2\n\n" + sse.DONE
    assert STATE == {"open": 0, "done": 1}


async def test_headers_of_middleware_and_stream_are_merged(site: Any) -> None:
    response = await call(site, "GET", "/ticks")
    names = [name.lower() for name, _ in response.raw_headers]
    assert names.count(b"content-type") == names.count(b"cache-control") == 1
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-from-middleware"] == "yes"
    assert response.headers["vary"] == "Origin, Accept"
    assert response.headers["set-cookie"].startswith("session=s1")
    assert "content-length" not in response.headers
    assert "x-souveraine-handoff" not in response.headers


async def test_chunks_arrive_as_they_are_sent(site: Any) -> None:
    async with open_request(site, "GET", "/ticks?n=1000&gap=0.01") as response:
        chunks = response.chunks()
        assert await anext(chunks) == b"data: 0\n\n"
        assert await anext(chunks) == b"data: 1\n\n"
        assert STATE["open"] == 1


async def test_disconnect_cancels_the_pump(site: Any) -> None:
    async with open_request(site, "GET", "/ticks?n=5&gap=60") as response:
        await anext(response.chunks())
        await asyncio.wait_for(response.disconnect(), 0.5)
        assert STATE == {"open": 0, "cancelled": 1}


async def test_client_that_leaves_during_the_view_starts_no_pump(site: Any) -> None:
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": b""})
    incoming.put_nowait({"type": "http.disconnect"})
    sent: list[Any] = []
    scope = {"type": "http", "method": "GET", "path": "/ticks", "headers": [], "query_string": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await asyncio.wait_for(site(scope, incoming.get, send), 5)
    assert sent == []
    assert not STATE


async def test_cancelled_application_cancels_the_pump(site: Any) -> None:
    """As daphne does at its shutdown."""

    async def leave_abruptly() -> None:
        async with open_request(site, "GET", "/ticks?n=5&gap=60") as response:
            await anext(response.chunks())
            raise LookupError

    with pytest.raises(LookupError):
        await leave_abruptly()
    assert STATE == {"open": 0, "cancelled": 1}


async def test_refusals_pass_untouched(site: Any) -> None:
    response = await call(site, "GET", "/ticks?deny=1")
    assert response.status == 403
    assert response.json()["detail"]
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-from-middleware"] == "yes"
    assert not STATE


async def test_error_after_the_hand_over_wins(site: Any) -> None:
    response = await call(site, "GET", "/raises")
    assert response.status == 500
    assert "fault" not in response.content.decode()
    assert not STATE


async def test_answer_replaced_by_middleware_wins(site: Any) -> None:
    response = await call(site, "GET", "/ticks?replace=1")
    assert (response.status, response.json()) == (503, {"detail": "replaced"})
    assert not STATE


async def test_preflight_is_untouched(site: Any) -> None:
    response = await call(site, "OPTIONS", "/ticks")
    assert response.status == 204
    assert response.headers["access-control-allow-origin"] == "*"


async def test_head_has_headers_and_ends(site: Any) -> None:
    response = await call(site, "HEAD", "/ticks?n=5&gap=60")
    assert response.status == 200
    assert response.headers["content-type"] == sse.HEADERS["Content-Type"]
    assert response.content == b""
    assert STATE == {"open": 0, "cancelled": 1}


async def test_json_answer(site: Any) -> None:
    response = await call(site, "POST", "/answers", json={})
    assert (response.status, response.content) == (201, '{"text":"é"}'.encode())
    assert response.headers["content-type"] == "application/json"
    assert response.headers["content-length"] == str(len(response.content))
    assert response.headers["x-own"] == "1"


@pytest.mark.parametrize("when", ["before", "silent"])
async def test_fault_before_the_start_is_a_500(
    site: Any, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    response = await call(site, "GET", f"/fails?when={when}")
    assert response.status == 500
    assert response.json()["code"] == "INTERNAL_SERVER_ERROR"
    assert "fault" not in response.content.decode()
    assert "/fails" in caplog.text
    assert response.headers["x-from-middleware"] == "yes"


async def test_provider_error_before_the_start_has_its_status(site: Any) -> None:
    response = await call(site, "GET", "/fails?when=provider")
    assert response.status == 429
    assert response.json()["error"]["type"] == "llm_rate_limit"


async def test_fault_in_mid_stream_ends_it(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        response = await call(site, "GET", "/fails?when=after")
    assert (response.status, response.content) == (200, b"data: 1\n\n")
    assert "event=stream_failed path=/fails" in caplog.text


async def test_stream_of_a_run(site: Any, run_id: uuid.UUID) -> None:
    await log.append_async(run_id, 1, [("frame", b"1")])
    async with open_request(site, "GET", f"/runs/{run_id}") as response:
        chunks = response.chunks()
        assert await anext(chunks) == b"data: 1\n\n"
        await log.append_async(run_id, 1, [("frame", b"2"), (log.END, b"{}")])
        assert await response.read() == b"data: 1\n\ndata: 2\n\ndata: {}\n\n"


def test_outside_of_asgi_the_error_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"souveraine\.testing\.asgi"):
        hand_over(RequestFactory().get("/"), Ticks(1, 0))


async def test_peer_address(site: Any) -> None:
    response = await call(site, "POST", "/echo", body=b"abc", client=("203.0.113.9", 1))
    assert response.json() == {"length": 3, "client": "203.0.113.9"}
    assert (await call(site, "POST", "/echo")).json()["client"] == "127.0.0.1"


@pytest.mark.parametrize("pieces", [1, 7], ids=["content-length", "chunked"])
async def test_oversized_body_is_refused(site: Any, pieces: int) -> None:
    body = b"x" * (LIMIT_BYTES + 7)
    size = -(-len(body) // pieces)
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    response = await call(site, "POST", "/echo", body=parts)
    assert response.status == 413
    assert str(LIMIT_BYTES) in response.json()["detail"]
    assert "SOUVERAINE_MAX_REQUEST_BYTES" in response.json()["detail"]


@pytest.mark.parametrize("pieces", [1, 10], ids=["content-length", "chunked"])
async def test_body_of_the_limit_passes(site: Any, pieces: int) -> None:
    parts = [b"x" * (LIMIT_BYTES // pieces)] * pieces
    response = await call(site, "POST", "/echo", body=parts)
    assert response.json()["length"] == LIMIT_BYTES


async def test_project_application_limits_bodies_and_refuses_websockets() -> None:
    limit = django_settings.CONFIG["SOUVERAINE_MAX_REQUEST_BYTES"]
    oversized = {"content-length": str(limit + 1)}
    response = await call(application, "POST", "/v1/agents/", headers=oversized)
    assert response.status == 413
    assert str(limit) in response.json()["detail"]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application({"type": "websocket", "path": "/ws/x/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 4404}]
