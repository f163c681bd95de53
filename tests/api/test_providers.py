"""Providers added over the API: their models are listed and used by their owner only, their keys never come out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agents.models import Provider
from agents.providers import registry, stored
from souveraine.testing import cast
from tests.api.paging import walk
from tests.conftest import Api, make_agent

KEYS = set(
    (  # noqa: SIM905
        "id name provider_type provider_category api_key base_url access_key region api_version organization_id "
        "updated_at last_synced api_key_enc access_key_enc"
    ).split()
)
SECRET = "sk-very-secret"


class Upstream(BaseHTTPRequestHandler):
    """An OpenAI-compatible server with one model that says hello, to the right key only."""

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_known(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {SECRET}":
            return True
        self._answer(401, b'{"error": {"message": "Incorrect API key"}}')
        return False

    def do_GET(self) -> None:
        if self._is_known():
            self._answer(200, json.dumps({"data": [{"id": "tiny", "object": "model"}]}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if not self._is_known():
            return
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
        delta = {"index": 0, "delta": {"role": "assistant", "content": "Hello from afar"}}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        lines = [json.dumps({**chunk, "choices": [choice]}) for choice in (delta, end)]
        text = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
        self._answer(200, text.encode(), "text/event-stream")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    stored._kept.providers = {}


def add(api: Api, url: str, **fields: Any) -> dict[str, Any]:
    body = {"name": "mine", "provider_type": "openai", "api_key": SECRET, "base_url": url}
    answer = api.post("/v1/providers/", {**body, **fields})
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def handles(api: Api, **options: Any) -> list[str]:
    return [m["handle"] for m in api.get("/v1/models/", **options).json()]


def test_it_works(api: Api, upstream: str) -> None:
    made = add(api, upstream)
    assert set(made) == KEYS
    assert made["provider_category"] == "byok"
    assert SECRET not in json.dumps(made)
    assert "mine/tiny" in handles(api)
    [model] = api.get("/v1/models?provider_category=byok").json()
    assert (model["handle"], model["provider_category"]) == ("mine/tiny", "byok")
    agent = make_agent(api, model="mine/tiny")
    sent = api.post(
        f"/v1/agents/{agent['id']}/messages", {"input": "Hi", "streaming": False}
    ).json()
    assert [m["content"] for m in sent["messages"]] == ["Hello from afar"]
    synced = api.patch(f"/v1/providers/{made['id']}/refresh").json()
    assert synced["last_synced"]


def test_keys_are_encrypted_at_rest_and_never_returned(idle_api: Api, upstream: str) -> None:
    made = add(idle_api, upstream, access_key="second-secret")
    row = Provider.objects.get()
    assert SECRET not in row.api_key_encrypted
    assert "second-secret" not in row.access_key_encrypted
    for answer in (
        idle_api.get("/v1/providers/"),
        idle_api.get(f"/v1/providers/{made['id']}"),
        idle_api.patch(f"/v1/providers/{made['id']}", {"region": "eu"}),
        idle_api.post(f"/v1/providers/{made['id']}/check"),
    ):
        assert answer.status == 200, answer.body
        assert b"secret" not in answer.body


def test_a_check_tells_whether_the_key_is_right(idle_api: Api, upstream: str) -> None:
    body = {"provider_type": "openai", "base_url": upstream}
    good = idle_api.post("/v1/providers/check", {**body, "api_key": SECRET})
    assert good.json() == {
        "message": "Valid api key for provider type openai",
        "models": ["tiny"],
    }
    wrong = idle_api.post("/v1/providers/check", {**body, "api_key": "wrong-one"})
    assert wrong.status == 401
    assert b"wrong-one" not in wrong.body
    made = add(idle_api, upstream, api_key="wrong-one")
    assert idle_api.post(f"/v1/providers/{made['id']}/check").status == 401
    assert handles(idle_api) == ["fake/fake-model"]
    idle_api.patch(f"/v1/providers/{made['id']}", {"api_key": SECRET})
    assert "mine/tiny" in handles(idle_api)


def test_nobody_else_sees_or_uses_them(idle_api: Api, upstream: str) -> None:
    add(idle_api, upstream)
    charlie = cast.charlie()
    assert "mine/tiny" in handles(idle_api)
    assert "mine/tiny" not in handles(idle_api, headers=charlie.headers)
    body = {"name": "thief", "model": "mine/tiny"}
    stolen = idle_api.post("/v1/agents", body, headers=charlie.headers)
    assert stolen.status == 400
    taken = idle_api.post(
        "/v1/providers",
        {"name": "mine", "provider_type": "openai", "api_key": "x"},
        headers=charlie.headers,
    )
    assert taken.status == 409
    with pytest.raises(Exception, match="no model provider"):
        registry.resolve("mine/tiny")  # what has no owner, such as an archive's model


def test_what_cannot_be_used_is_refused(idle_api: Api, upstream: str) -> None:
    good = {"name": "mine", "provider_type": "openai", "api_key": "k", "base_url": upstream}
    wrong: list[tuple[dict[str, Any], int]] = [
        ({"name": "a/b"}, 400),
        ({"name": ""}, 422),
        ({"name": "x" * 65}, 422),
        ({"name": "fake"}, 409),
        ({"name": "openai-proxy"}, 409),
        ({"provider_type": "bedrock"}, 400),
        ({"provider_type": "made-up"}, 400),
        ({"provider_type": "vllm", "base_url": None}, 400),
        ({"base_url": "file:///etc/passwd"}, 400),
        ({"api_key": None}, 422),
        ({"api_key": 5}, 422),
    ]
    for change, status in wrong:
        answer = idle_api.post("/v1/providers", {**good, **change})
        assert answer.status == status, (change, answer.body)
    assert Provider.objects.count() == 0
    add(idle_api, upstream)
    assert idle_api.post("/v1/providers", good).status == 409


def test_they_are_listed_in_pages_and_deleted(idle_api: Api, upstream: str) -> None:
    made = [add(idle_api, upstream, name=f"p{n}") for n in range(5)]
    assert walk(idle_api, "/v1/providers?order=asc") == [p["id"] for p in made]
    assert [p["name"] for p in idle_api.get("/v1/providers?name=p3").json()] == ["p3"]
    assert idle_api.get("/v1/providers?provider_type=ollama").json() == []
    path = f"/v1/providers/{made[0]['id']}"
    assert "p0/tiny" in handles(idle_api)
    assert "deleted" in idle_api.delete(path).json()["message"]
    assert idle_api.delete(path).status == 404
    assert "p0/tiny" not in handles(idle_api)


def test_one_that_does_not_answer_hides_no_others(idle_api: Api, upstream: str) -> None:
    add(idle_api, upstream)
    add(idle_api, "http://127.0.0.1:9", name="dead")
    assert set(handles(idle_api)) == {"fake/fake-model", "mine/tiny"}
