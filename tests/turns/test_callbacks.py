"""Callbacks: sent when a run has ended, signed, again after failures, never to what is not public."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.utils import timezone

from conversations.models import Run, RunCallback
from conversations.services import callbacks
from souveraine.testing.fake_provider import Reply
from tests.conftest import Api, make_agent, wait_for


class Receiver:
    """An HTTP server that keeps what it gets and answers with `statuses`, then 200."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", receiver.url("/elsewhere"))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setitem(
        django_settings.CONFIG.values, "SOUVERAINE_OUTBOUND_ALLOW", ["127.0.0.1/32"]
    )
    found = Receiver()
    yield found
    found.close()


def send_async(api: Api, agent: dict[str, Any], url: str | None, **fields: Any) -> dict[str, Any]:
    body = {"input": "hello", "callback_url": url, **fields}
    answer = api.post(f"/v1/agents/{agent['id']}/messages/async", body)
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def is_over(run: dict[str, Any]) -> bool:
    return RunCallback.objects.filter(
        pk=run["id"].removeprefix("run-"), next_attempt_at__isnull=True
    ).exists()


def test_the_run_comes_back_at_once_and_the_callback_when_it_has_ended(
    api: Api, agent: dict[str, Any], provider: Any, receiver: Receiver, capsys: Any
) -> None:
    provider.enqueue(Reply(text="fine", prompt_tokens=7))
    run = send_async(api, agent, receiver.url())
    assert (run["status"], run["background"], run["completed_at"]) == ("created", True, None)
    assert run["metadata"]["run_type"] == "send_message_async"
    assert run["callback_url"] == receiver.url()
    wait_for(lambda: is_over(run))
    [(headers, body)] = receiver.got
    sent = json.loads(body)
    now = api.get(f"/v1/runs/{run['id']}").json()
    assert sent["run_id"] == run["id"]
    assert (sent["status"], sent["completed_at"]) == ("completed", now["completed_at"])
    result = sent["metadata"]["result"]
    assert [m["content"] for m in result["messages"]] == ["fine"]
    assert result["stop_reason"]["stop_reason"] == "end_turn"
    assert result["usage"]["prompt_tokens"] == 7
    assert (now["callback_status_code"], now["callback_error"]) == (200, None)
    assert now["callback_sent_at"] >= now["created_at"]
    assert api.get("/v1/runs").json()[0] == now

    call_command("callbacksecret")
    key = base64.b64decode(capsys.readouterr().out.strip().removeprefix("whsec_"))
    assert headers["webhook-id"] == run["id"]
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"


def test_a_failed_callback_is_sent_again_under_the_same_id_and_redirects_are_not_followed(
    api: Api,
    agent: dict[str, Any],
    provider: Any,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callbacks, "RETRY_SECONDS", (0,) * 7)
    monkeypatch.setattr("conversations.turn.callbacks.LOOK_SECONDS", 0.02)
    provider.enqueue("fine")
    receiver.statuses = [500, 302]
    run = send_async(api, agent, receiver.url())
    wait_for(lambda: is_over(run))
    assert len(receiver.got) == 3
    assert {headers["webhook-id"] for headers, _ in receiver.got} == {run["id"]}
    assert len({body for _, body in receiver.got}) == 1
    assert RunCallback.objects.get().attempts == 3


def test_who_never_answers_well_is_given_up_and_gone_is_final(
    api: Api,
    agent: dict[str, Any],
    provider: Any,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callbacks, "RETRY_SECONDS", (0,) * 7)
    monkeypatch.setattr("conversations.turn.callbacks.LOOK_SECONDS", 0.02)
    provider.enqueue("a", "b")
    receiver.statuses = [503] * callbacks.MAX_ATTEMPTS + [410]
    run = send_async(api, agent, receiver.url())
    wait_for(lambda: is_over(run))
    assert len(receiver.got) == callbacks.MAX_ATTEMPTS
    shown = api.get(f"/v1/runs/{run['id']}").json()
    assert (shown["callback_status_code"], shown["status"]) == (503, "completed")
    assert shown["callback_error"] == "The answer was 503."
    run = send_async(api, agent, receiver.url())
    wait_for(lambda: is_over(run))
    assert len(receiver.got) == callbacks.MAX_ATTEMPTS + 1


def test_a_callback_whose_worker_died_while_it_sent_is_sent_by_another(
    idle_api: Api, receiver: Receiver, new_worker: Any, provider: Any
) -> None:
    agent = make_agent(idle_api)
    run = send_async(idle_api, agent, receiver.url())
    assert callbacks.claim_due(10) == []  # the run has not ended
    Run.objects.update(status="cancelled", stop_reason="cancelled", completed_at=timezone.now())
    [lost] = callbacks.claim_due(10)
    assert callbacks.claim_due(10) == []  # nobody else gets it meanwhile
    RunCallback.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1))
    new_worker()
    wait_for(lambda: is_over(run))
    assert json.loads(receiver.got[0][1])["status"] == "cancelled"
    # The first one, back from the dead, does not overwrite what its successor noted.
    callbacks.record(lost, status_code=None, error="late")
    assert RunCallback.objects.get().error == ""


def test_a_worker_that_dies_at_each_attempt_ends_the_attempts(
    idle_api: Api, receiver: Receiver
) -> None:
    send_async(idle_api, make_agent(idle_api), receiver.url())
    Run.objects.update(status="failed", completed_at=timezone.now())
    past = timezone.now() - timedelta(seconds=1)
    claimed = []
    for _ in range(callbacks.MAX_ATTEMPTS + 1):
        RunCallback.objects.filter(next_attempt_at__isnull=False).update(next_attempt_at=past)
        claimed += callbacks.claim_due(10)
    assert [delivery.attempt for delivery in claimed] == list(range(1, callbacks.MAX_ATTEMPTS + 1))
    assert RunCallback.objects.get().next_attempt_at is None


BAD_URLS = (
    "http://127.0.0.1:1/hook",
    "http://localhost/hook",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://[::1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://169.254.169.254/latest/meta-data",
    "http://metadata.google.internal/",
    "http://user:secret@example.com/",
    "ftp://example.com/",
    "example.com/hook",
    "http://",
    "https://example.com:99999/",
    "https://example.com/" + "x" * 2000,
)


def test_a_bad_callback_url_is_refused_before_anything_is_stored(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    for url in BAD_URLS:
        answer = idle_api.post(
            f"/v1/agents/{agent['id']}/messages/async", {"input": "x", "callback_url": url}
        )
        assert answer.status == 422, url
        assert answer.json()["errors"][0]["loc"] == ["body", "callback_url"]
    assert not Run.objects.exists()


def test_a_name_that_leads_to_a_private_address_gets_nothing(
    api: Api,
    agent: dict[str, Any],
    provider: Any,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(django_settings.CONFIG.values, "SOUVERAINE_OUTBOUND_ALLOW", [])

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr("souveraine.lib.outbound._resolve", resolve)
    provider.enqueue("fine")
    url = receiver.url().replace("127.0.0.1", "hooks.example")
    run = send_async(api, agent, url)
    wait_for(lambda: is_over(run))
    shown = api.get(f"/v1/runs/{run['id']}").json()
    assert "not a public address" in shown["callback_error"]
    assert (shown["callback_status_code"], receiver.got) == (None, [])
