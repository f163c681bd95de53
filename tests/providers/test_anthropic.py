"""Anthropic's wire → deltas, requests and errors."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from agents.providers import registry
from agents.providers.anthropic import ANTHROPIC_VERSION, AnthropicProvider
from agents.providers.anthropic_request import OPENING, payload
from agents.providers.base import (
    ChatMessage,
    ChatRequest,
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallRequest,
    UsageDelta,
)
from agents.providers.errors import Endpoint
from souveraine.errors import ProviderError
from tests.conftest import Api, make_agent
from tests.providers.conftest import ask, collect
from tests.providers.wire import Answer, WireServer, as_json

MESSAGES = "/v1/messages"
LIST = "/v1/models?limit=1000"
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"}}
LINK = {"type": "image", "source": {"type": "url", "url": "https://x.invalid/a.png"}}
CALL = ToolCallRequest("functions.look:0", "look", '{"x": 1}')


def provider(url: str, timeout_seconds: float = 5.0) -> AnthropicProvider:
    endpoint = Endpoint(
        "anthropic",
        "Anthropic",
        f"{url}/v1",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_API_KEY",
        api_key="sk-ant-secret",
        key_header="x-api-key",
        headers={"anthropic-version": ANTHROPIC_VERSION},
    )
    return AnthropicProvider(endpoint, timeout_seconds=timeout_seconds)


def events(*given: dict[str, Any], **more: Any) -> Answer:
    parts = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in given]
    return Answer(parts, content_type="text/event-stream; charset=utf-8", **more)


def start(**usage: Any) -> dict[str, Any]:
    usage = {"input_tokens": 5, "output_tokens": 1, **usage}
    return {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": usage}}


def block(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "content_block_start",
        "index": index,
        "content_block": {"type": kind, **fields},
    }


def piece(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def finish(reason: str, **usage: Any) -> list[dict[str, Any]]:
    usage = {"output_tokens": 9, **usage}
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


HALF = [start(), block(0, "text", text=""), piece(0, "text_delta", text="half")]


async def failure(server: WireServer, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await collect(provider(server.url, **more), ask())
    assert "anthropic at" in caught.value.provider_detail
    assert "sk-ant-secret" not in caught.value.provider_detail
    return caught.value


async def test_it_works(server: WireServer) -> None:
    server.on(
        MESSAGES,
        events(
            start(cache_creation_input_tokens=20, cache_read_input_tokens=300),
            block(0, "text", text=""),
            {"type": "ping"},
            piece(0, "text_delta", text="Hel"),
            piece(0, "text_delta", text="lo\u2028"),
            stop(0),
            *finish("end_turn"),
        ),
    )
    assert await collect(provider(server.url), ask("claude")) == [
        TextDelta("Hel"),
        TextDelta("lo\u2028"),
        UsageDelta(325, 9, 334, cached_input_tokens=300),
        FinishDelta("stop"),
    ]
    seen = server.requests[0]
    assert seen.headers["x-api-key"] == "sk-ant-secret"
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in seen.headers


async def test_thinking_and_tool_calls(server: WireServer) -> None:
    server.on(
        MESSAGES,
        events(
            start(),
            block(0, "thinking", thinking=""),
            piece(0, "thinking_delta", thinking="hmm"),
            piece(0, "signature_delta", signature="c2ln"),
            stop(0),
            block(1, "redacted_thinking", data="xx"),
            stop(1),
            block(2, "text", text=""),
            piece(2, "text_delta", text="Let me see."),
            stop(2),
            block(3, "tool_use", id="toolu_1", name="look", input={}),
            piece(3, "input_json_delta", partial_json=""),
            piece(3, "input_json_delta", partial_json='{"x"'),
            piece(3, "input_json_delta", partial_json=": 1}"),
            stop(3),
            block(4, "tool_use", id="toolu_2", name="look", input={"y": 2}),
            stop(4),
            *finish("tool_use", output_tokens_details={"thinking_tokens": 3}),
        ),
    )
    assert await collect(provider(server.url), ask(tools=[TOOL])) == [
        ReasoningDelta("hmm"),
        TextDelta("Let me see."),
        ToolCallDelta(0, "toolu_1", "look", ""),
        ToolCallDelta(0, arguments='{"x"'),
        ToolCallDelta(0, arguments=": 1}"),
        ToolCallDelta(1, "toolu_2", "look", ""),
        ToolCallDelta(1, arguments='{"y": 2}'),
        UsageDelta(5, 9, 14, reasoning_tokens=3),
        FinishDelta("tool_calls"),
    ]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("max_tokens", "length"), ("stop_sequence", "stop"), ("refusal", "refusal")],
)
async def test_finish_reasons(server: WireServer, reason: str, expected: str) -> None:
    server.on(MESSAGES, events(*HALF, stop(0), *finish(reason)))
    assert (await collect(provider(server.url), ask()))[-1] == FinishDelta(expected)


async def test_request_is_what_the_api_takes(server: WireServer) -> None:
    server.on(MESSAGES, events(*HALF, stop(0), *finish("end_turn")))
    messages = [
        ChatMessage("system", "You are."),
        ChatMessage("user", [{"type": "text", "text": "see"}, IMAGE, LINK]),
        ChatMessage("assistant", "", (CALL,)),
        ChatMessage("tool", "seen", tool_call_id=CALL.id, name="look", is_error=True),
        ChatMessage("user", "and?"),
        ChatMessage("system", "Later on."),
    ]
    request = ChatRequest(
        "claude",
        messages,
        tools=[TOOL],
        temperature=1.0,
        max_tokens=77,
        parallel_tool_calls=False,
        response_format={"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    )
    await collect(provider(server.url), request)
    cached = {"type": "ephemeral"}
    assert server.bodies(MESSAGES)[0] == {
        "model": "claude",
        "max_tokens": 77,
        "stream": True,
        "system": [{"type": "text", "text": "You are.", "cache_control": cached}],
        "tools": [
            {
                "name": "look",
                "description": "Look.",
                "input_schema": {"type": "object", "properties": {}},
            }
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"},
                    },
                    {"type": "image", "source": {"type": "url", "url": "https://x.invalid/a.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "functions_look_0",
                        "name": "look",
                        "input": {"x": 1},
                    }
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "functions_look_0",
                        "content": [{"type": "text", "text": "seen"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "and?"},
                    {"type": "text", "text": "Later on.", "cache_control": cached},
                ],
            },
        ],
    }


def roles(*messages: ChatMessage) -> list[str]:
    return [turn["role"] for turn in payload(ChatRequest("m", list(messages)))["messages"]]


def test_roles_alternate_and_the_user_is_first() -> None:
    user, blank = ChatMessage("user", "a"), ChatMessage("user", " \n")
    said, silent = ChatMessage("assistant", "b"), ChatMessage("assistant", "")
    assert roles(user, user, said, said, silent, user) == ["user", "assistant", "user"]
    assert roles(said, user) == ["user", "assistant", "user"]
    for nothing in ([], [blank], [silent], [ChatMessage("system", "s")]):
        body = payload(ChatRequest("m", nothing))
        assert [b["text"] for t in body["messages"] for b in t["content"]] == [OPENING]


def test_temperature_goes_out_only_inside_the_apis_range() -> None:
    sent = [payload(ChatRequest("m", [], temperature=t)) for t in (None, 0.0, 0.5, 1.0, 1.7)]
    assert [body.get("temperature") for body in sent] == [None, 0.0, 0.5, None, None]


async def test_model_that_refuses_a_temperature_is_asked_without_one(server: WireServer) -> None:
    def answer(body: Any) -> Answer:
        if "temperature" in body:
            message = "`temperature` is deprecated for this model."
            return as_json(error("invalid_request_error", message), 400)
        return events(*HALF, stop(0), *finish("end_turn"))

    server.on(MESSAGES, answer)
    anthropic = provider(server.url)
    for _ in range(2):
        assert (await collect(anthropic, ask("new", temperature=0.5)))[0] == TextDelta("half")
    sent = [body.get("temperature") for body in server.bodies(MESSAGES)]
    assert sent == [0.5, None, None]


def test_image_forms() -> None:
    data_url = {"url": "data:image/jpeg;base64,SlBH"}
    sources = [data_url, {"url": "file:///x"}, {"file_id": "f-1"}, {}]
    parts = [{"type": "image", "source": source} for source in sources]
    content = payload(ChatRequest("m", [ChatMessage("user", parts)]))["messages"][0]["content"]
    assert content[0]["source"] == {"type": "base64", "media_type": "image/jpeg", "data": "SlBH"}
    texts = [block["text"] for block in content[1:]]
    assert texts == ["[image: file:///x]", "[image: f-1]", "[image: missing]"]


def error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


@pytest.mark.parametrize(
    ("answer", "error_type", "is_transient"),
    [
        (
            as_json(error("authentication_error", "invalid x-api-key"), 401),
            "llm_authentication",
            False,
        ),
        (as_json(error("rate_limit_error", "slow down"), 429), "llm_rate_limit", True),
        (as_json(error("overloaded_error", "Overloaded"), 529), "llm_error", True),
        (as_json(error("api_error", "oops"), 500), "llm_error", True),
        (as_json(error("timeout_error", "slow"), 504), "llm_timeout", True),
        (
            as_json(
                error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), 400
            ),
            "context_window_overflow",
            False,
        ),
        (
            as_json(
                error(
                    "invalid_request_error",
                    "input length and `max_tokens` exceed context limit: 9 + 1 > 8",
                ),
                400,
            ),
            "context_window_overflow",
            False,
        ),
        (
            as_json(error("invalid_request_error", "Your credit balance is too low"), 400),
            "llm_insufficient_credits",
            False,
        ),
        (
            as_json(error("invalid_request_error", "messages: bad"), 400),
            "llm_bad_request",
            False,
        ),
        (as_json(error("not_found_error", "model: x"), 404), "llm_bad_request", False),
        (as_json({"content": []}), "llm_error", False),
        (events(*HALF, error("overloaded_error", "Overloaded")), "llm_error", True),
        (events(*HALF, error("rate_limit_error", "later")), "llm_rate_limit", True),
        (events(*HALF), "llm_error", True),
        (events(*HALF, cut=True), "llm_error", True),
        (events(*HALF, hang=True), "llm_timeout", True),
        (events({"type": "content_block_start"}), "llm_error", False),
        (Answer([b"data: {oops\n\n"], content_type="text/event-stream"), "llm_error", False),
    ],
)
async def test_failures(
    server: WireServer, answer: Answer, error_type: str, is_transient: bool
) -> None:
    server.on(MESSAGES, answer)
    found = await failure(server, timeout_seconds=0.3)
    assert (found.error_type, found.is_transient) == (error_type, is_transient)


async def test_error_names_anthropic_and_its_settings(server: WireServer) -> None:
    server.on(
        MESSAGES,
        as_json(error("invalid_request_error", "bad"), 400),
        as_json(error("authentication_error", "no"), 401),
        as_json(error("overloaded_error", "Overloaded"), 529, headers={"retry-after": "3"}),
    )
    assert "Bad request to Anthropic" in (await failure(server)).provider_detail
    assert "check ANTHROPIC_API_KEY" in (await failure(server)).provider_detail
    overloaded = await failure(server)
    assert "overloaded" in overloaded.provider_detail.lower()  # letta-code retries on this word
    assert overloaded.data["retry_after_seconds"] == 3


async def test_text_before_an_error_comes_out(server: WireServer) -> None:
    server.on(MESSAGES, events(*HALF, error("api_error", "broke")))
    got: list[Delta] = []
    with pytest.raises(ProviderError):
        await collect(provider(server.url), ask(), got)
    assert got == [TextDelta("half")]


async def test_refused_connection_names_the_setting() -> None:
    with pytest.raises(ProviderError) as caught:
        await collect(provider("http://127.0.0.1:1"), ask())
    assert "Check ANTHROPIC_BASE_URL" in caught.value.provider_detail
    assert caught.value.is_transient


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_leaving_the_stream_closes_the_socket(server: WireServer, is_cancelled: bool) -> None:
    server.on(MESSAGES, events(*HALF, hang=True))
    stream = provider(server.url).stream(ask())
    assert await anext(stream) == TextDelta("half")
    left_at = time.monotonic()
    if is_cancelled:
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
    else:
        await stream.aclose()
    assert await asyncio.to_thread(server.disconnected.wait, 3)
    assert server.disconnected_at - left_at < 1.0


def test_listing_tells_windows_limits_and_capabilities(server: WireServer) -> None:
    told = {
        "id": "claude-new",
        "type": "model",
        "display_name": "Claude New",
        "max_input_tokens": 1000000,
        "max_tokens": 64000,
        "capabilities": {"image_input": {"supported": False}, "thinking": {"supported": True}},
    }
    server.on(LIST, as_json({"data": [told, {"id": "claude-old"}], "has_more": False}))
    new, old = provider(server.url).list_models()
    assert (new.handle, new.display_name) == ("anthropic/claude-new", "Claude New")
    assert (new.context_window, new.max_output_tokens) == (1000000, 64000)
    assert new.capabilities == {"tools", "thinking"}
    assert (old.context_window, old.capabilities) == (200000, {"tools", "vision"})
    assert (old.provider_type, old.endpoint_type) == ("anthropic", "anthropic")
    assert server.requests[0].headers["x-api-key"] == "sk-ant-secret"


def test_listing_of_an_unexpected_form_is_a_provider_error(server: WireServer) -> None:
    server.on(LIST, as_json({"models": []}))
    with pytest.raises(ProviderError):
        provider(server.url).list_models()


def test_turn_with_a_tool_call_over_the_wire(api: Api, server: WireServer) -> None:
    call = {"label": "human", "new_string": "Likes jam"}
    server.on(LIST, as_json({"data": [{"id": "claude"}]}))
    server.on(
        MESSAGES,
        events(
            start(),
            block(0, "thinking", thinking=""),
            piece(0, "thinking_delta", thinking="hmm"),
            stop(0),
            block(1, "tool_use", id="toolu_1", name="memory_insert", input={}),
            piece(1, "input_json_delta", partial_json=json.dumps(call)),
            stop(1),
            *finish("tool_use"),
        ),
        events(*HALF, stop(0), *finish("end_turn")),
    )
    with registry.override_providers({"anthropic": provider(server.url)}):
        agent = make_agent(api, model="anthropic/claude")
        body = {"messages": [{"role": "user", "content": "I like jam"}]}
        answer = api.post(f"/v1/agents/{agent['id']}/messages", body)
    kinds = [m["message_type"] for m in answer.json()["messages"]]
    assert kinds == [
        "reasoning_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert answer.json()["usage"]["prompt_tokens"] == 10
    second = server.bodies(MESSAGES)[1]
    assert "Likes jam" in second["system"][0]["text"]
    assert [turn["role"] for turn in second["messages"]] == ["user", "assistant", "user"]
    result = second["messages"][-1]["content"][0]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "toolu_1")
    assert result["cache_control"] == {"type": "ephemeral"}
