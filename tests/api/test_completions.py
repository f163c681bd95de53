"""An agent as the model of OpenAI's clients: the real `openai` package reads its answers."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import openai
import pytest

from conversations.models import Message, Run
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()


class Bridge(httpx.BaseTransport):
    """Hands the openai package's requests to the application under test."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._api.request(
            request.method,
            request.url.path,
            json.loads(request.read()),
            headers={"content-type": "application/json"},
        )
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)


@pytest.fixture
def client(api: Api) -> openai.OpenAI:
    http = httpx.Client(transport=Bridge(api))
    return openai.OpenAI(
        base_url="http://testserver/v1", api_key="local-dev-key", http_client=http, max_retries=0
    )


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def heard() -> list[str]:
    rows = Message.objects.filter(role="user").order_by("sequence")
    return list(rows.values_list("text", flat=True))


def test_it_works(client: openai.OpenAI, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue(Reply(text="Good morning"))
    answer = client.chat.completions.create(model=agent["id"], messages=[user("Hi")])
    assert answer.choices[0].message.content == "Good morning"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == agent["id"]
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.id.startswith("chatcmpl-")


def test_it_streams(client: openai.OpenAI, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue(Reply(text="one two three"))
    chunks = list(
        client.chat.completions.create(
            model=agent["name"],
            messages=[user("Count")],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    with_choice = [c for c in chunks if c.choices]
    assert with_choice[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in with_choice) == "one two three"
    assert with_choice[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens >= 0
    assert len({c.id for c in chunks}) == 1


def test_only_what_is_new_is_said_to_the_agent(
    client: openai.OpenAI, agent: dict[str, Any]
) -> None:
    history: list[Any] = [
        {"role": "system", "content": "You are a helpful assistant."},
        user("First"),
        {"role": "assistant", "content": "Yes?"},
        user("Second"),
        user([{"type": "text", "text": "Third"}]),
    ]
    client.chat.completions.create(model=agent["id"], messages=history)
    assert heard() == ["Second", "Third"]


def test_images_reach_the_message(client: openai.OpenAI, agent: dict[str, Any]) -> None:
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    client.chat.completions.create(model=agent["id"], messages=[user(parts)])
    content = Message.objects.get(role="user").content
    assert content is not None
    assert content[1]["source"]["data"] == PIXEL


def test_a_model_that_fails_is_an_error_of_the_client(
    client: openai.OpenAI, agent: dict[str, Any], provider: Any
) -> None:
    from souveraine.errors import ProviderError

    provider.enqueue(Reply(error=ProviderError("llm_authentication", "wrong key")))
    with pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model=agent["id"], messages=[user("Hi")])
    provider.enqueue(Reply(error=ProviderError("llm_bad_request", "no such thing")))
    with pytest.raises(openai.APIError, match="no such thing"):
        list(client.chat.completions.create(model=agent["id"], messages=[user("Hi")], stream=True))


@pytest.mark.parametrize("streams", [False, True])
def test_a_call_that_waits_for_approval_is_told_and_the_next_message_refused_at_once(
    client: openai.OpenAI, api: Api, agent: dict[str, Any], provider: Any, streams: bool
) -> None:
    tool = "conversation_search"
    api.patch(f"/v1/agents/{agent['id']}/tools/approval/{tool}", {"requires_approval": True})
    provider.enqueue(Reply(tool_calls=[Call(tool, {"query": "x"}, id="call_1")]))
    create = client.chat.completions.create
    if streams:
        chunks = list(create(model=agent["id"], messages=[user("Look")], stream=True))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert chunks[-1].choices[0].finish_reason == "stop"
    else:
        text = create(model=agent["id"], messages=[user("Look")]).choices[0].message.content or ""
    assert text.startswith(f"[The call of {tool} waits for an approval.")
    with pytest.raises(openai.ConflictError):
        create(model=agent["id"], messages=[user("And?")], stream=streams)
    again = {"model": agent["id"], "messages": [user("And?")], "stream": streams}
    assert api.post("/v1/chat/completions", again).json()["code"] == "PENDING_APPROVAL"
    assert heard() == ["Look"]
    assert not Run.objects.filter(status="waiting").exists()


def test_what_cannot_be_meant_is_refused(api: Api, agent: dict[str, Any]) -> None:
    make_agent(api, name="twin")
    make_agent(api, name="twin")
    good = {"model": agent["id"], "messages": [user("Hi")]}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    wrong: list[tuple[dict[str, Any], int]] = [
        ({"model": "nobody"}, 404),
        ({"model": "twin"}, 400),
        ({"model": None}, 422),
        ({"messages": []}, 422),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 422),
        ({"messages": [{"role": "robot", "content": "x"}]}, 422),
        ({"messages": [user(5)]}, 422),
        ({"messages": [user([5])]}, 422),
        ({"messages": [user("")]}, 422),
        ({"messages": [user([image])]}, 422),
        ({"messages": [user([{"type": "input_audio"}])]}, 422),
        ({"n": 2}, 422),
    ]
    for change, status in wrong:
        answer = api.post("/v1/chat/completions", {**good, **change})
        assert answer.status == status, (change, answer.status, answer.body)
    assert Run.objects.count() == 0


def test_errors_have_the_form_that_openai_clients_read(client: openai.OpenAI, api: Api) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hi"}])
    body = caught.value.body
    assert isinstance(body, dict)
    assert "There is no agent 'nobody'" in body["message"]
    assert (body["type"], body["code"]) == ("invalid_request_error", "NOT_FOUND")
    plain = api.post("/v1/chat/completions", {"model": "nobody", "messages": []}).json()
    assert plain["detail"] == plain["error"]["message"], "ours stands beside it"
