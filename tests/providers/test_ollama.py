"""Ollama's wire → deltas, requests and errors."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from agents.providers.base import (
    ChatMessage,
    ChatRequest,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallRequest,
    UsageDelta,
)
from agents.providers.errors import Endpoint
from agents.providers.ollama import OllamaProvider
from souveraine.errors import ProviderError
from tests.providers.conftest import ask, collect
from tests.providers.wire import Answer, WireServer, as_json, ndjson

CHAT, SHOW, TAGS = "/api/chat", "/api/show", "/api/tags"
NESTED = {
    "name": "look",
    "description": "Look.",
    "parameters": {
        "type": "object",
        "properties": {
            "at": {
                "type": "object",
                "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            }
        },
    },
}
END = {
    "message": {"content": ""},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 4,
    "eval_count": 2,
}


def provider(url: str, timeout_seconds: float = 5.0) -> OllamaProvider:
    endpoint = Endpoint(
        "ollama", "Ollama", url, "OLLAMA_BASE_URL", start_hint="Start it with `ollama serve`."
    )
    return OllamaProvider(endpoint, timeout_seconds=timeout_seconds, default_context_window=30000)


def shown(*capabilities: str, length: int = 8192) -> Answer:
    return as_json(
        {
            "model_info": {"qwen3.context_length": length},
            "capabilities": ["completion", *capabilities],
        }
    )


def said(**message: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": "", **message}, "done": False}


async def failure(server: WireServer, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await collect(provider(server.url, **more), ask("qwen3"))
    assert f"ollama at {server.url}" in caught.value.provider_detail
    return caught.value


async def test_it_works(server: WireServer) -> None:
    server.on(SHOW, shown("tools", "thinking"))
    server.on(
        CHAT, ndjson(said(thinking="hmm"), said(content="Hel"), said(content="lo\u2028\x85"), END)
    )
    assert await collect(provider(server.url), ask("qwen3")) == [
        ReasoningDelta("hmm"),
        TextDelta("Hel"),
        TextDelta("lo\u2028\x85"),
        UsageDelta(4, 2, 6),
        FinishDelta("stop"),
    ]
    assert server.bodies(CHAT)[0]["think"] is True


async def test_parallel_tool_calls(server: WireServer) -> None:
    calls = [
        {"id": "c1", "function": {"name": "look", "arguments": {"at": {"x": 1}}}},
        {"function": {"name": "look", "arguments": {"text": "[1]"}}},
    ]
    server.on(SHOW, shown("tools")).on(CHAT, ndjson(said(tool_calls=calls), END))
    first, second, _, finish = await collect(provider(server.url), ask("qwen3", tools=[NESTED]))
    assert first == ToolCallDelta(0, "c1", "look", '{"at": {"x": 1}}')
    assert isinstance(second, ToolCallDelta)
    assert (second.index, json.loads(second.arguments)) == (1, {"text": "[1]"})
    assert second.id
    assert finish == FinishDelta("tool_calls")
    assert server.bodies(CHAT)[0]["tools"] == [{"type": "function", "function": NESTED}]


@pytest.mark.parametrize(("window", "length", "sent"), [(4000, 8192, 4000), (100_000, 8192, 8192)])
async def test_num_ctx_is_always_sent(
    server: WireServer, window: int, length: int, sent: int
) -> None:
    server.on(SHOW, shown(length=length)).on(CHAT, ndjson(END))
    await collect(
        provider(server.url), ask("qwen3", context_window=window, temperature=0.2, max_tokens=9)
    )
    assert server.bodies(CHAT)[0]["options"] == {
        "num_ctx": sent,
        "temperature": 0.2,
        "num_predict": 9,
    }


async def test_num_ctx_is_sent_by_a_server_without_show(server: WireServer) -> None:
    server.on(CHAT, ndjson(END))
    await collect(provider(server.url), ask("qwen3", context_window=5000, tools=[NESTED]))
    assert server.bodies(CHAT)[0]["options"]["num_ctx"] == 5000
    assert server.bodies(CHAT)[0]["tools"]


@pytest.mark.parametrize(
    ("words", "read", "is_told"),
    [(6000, 4096, False), (20000, 4096, True), (20000, 0, False), (300, 20, False)],
)
async def test_prompt_that_was_cut_is_logged(
    server: WireServer, caplog: pytest.LogCaptureFixture, words: int, read: int, is_told: bool
) -> None:
    server.on(SHOW, shown()).on(CHAT, ndjson({**END, "prompt_eval_count": read}))
    await collect(provider(server.url), ask("qwen3", "word " * words, context_window=8000))
    told = [r.getMessage() for r in caplog.records if "event=prompt_cut" in r.getMessage()]
    assert bool(told) == is_told
    if told:
        assert "prompt_eval_count=4096" in told[0]
        assert "num_ctx=8000" in told[0]


async def test_inline_image_given_as_a_data_url_is_sent(server: WireServer) -> None:
    server.on(SHOW, shown("vision")).on(CHAT, ndjson(END))
    part = {"type": "image", "source": {"type": "url", "url": "data:image/png;base64,UE5H"}}
    parts: list[Any] = [{"type": "text", "text": "see"}, part]
    request = ChatRequest("qwen3", [ChatMessage("user", parts)])
    await collect(provider(server.url), request)
    assert server.bodies(CHAT)[0]["messages"][0]["images"] == ["UE5H"]


async def test_model_without_tools_and_thinking_is_not_asked_for_them(server: WireServer) -> None:
    server.on(SHOW, shown()).on(CHAT, ndjson(END))
    await collect(provider(server.url), ask("tiny", tools=[NESTED]))
    assert not {"tools", "think"} & set(server.bodies(CHAT)[0])


async def test_history_carries_calls_returns_and_images(server: WireServer) -> None:
    server.on(SHOW, shown("tools", "vision")).on(CHAT, ndjson(END))
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "UE5H"}},
        {"type": "image", "source": {"type": "url", "url": "http://x.invalid/a.png"}},
    ]
    await collect(
        provider(server.url),
        ChatRequest(
            "qwen3",
            [
                ChatMessage("user", parts),
                ChatMessage("assistant", "", (ToolCallRequest("c1", "look", "{bad"),)),
                ChatMessage("tool", "seen", tool_call_id="c1", name="look"),
            ],
        ),
    )
    user, assistant, tool = server.bodies(CHAT)[0]["messages"]
    assert user["images"] == ["UE5H"]
    assert "http://x.invalid/a.png" in user["content"]  # Ollama fetches nothing
    assert assistant["tool_calls"][0]["function"]["arguments"] == {"malformed_arguments": "{bad"}
    assert (tool["role"], tool["content"], tool["tool_name"]) == ("tool", "seen", "look")


async def test_missing_model_says_how_to_pull_it(server: WireServer) -> None:
    server.on(SHOW, as_json({"error": "model 'qwen3' not found"}, 404))
    error = await failure(server)
    assert (error.error_type, error.is_transient) == ("llm_bad_request", False)
    assert "ollama pull qwen3" in error.provider_detail


@pytest.mark.parametrize(
    ("answer", "error_type", "is_transient"),
    [
        (as_json({"error": "boom"}, 500), "llm_error", True),
        (as_json({"error": "slow down"}, 429), "llm_rate_limit", True),
        (as_json({"error": "no"}, 401), "llm_authentication", False),
        (as_json({"error": "bad"}, 400), "llm_bad_request", False),
        (
            as_json({"error": "input length exceeds the context length"}, 400),
            "context_window_overflow",
            False,
        ),
        (ndjson(said(content="half"), {"error": "runner died"}), "llm_error", True),
        (ndjson(said(content="half")), "llm_error", True),
        (ndjson(said(content="half"), cut=True), "llm_error", True),
        (Answer([b"{oops\n"]), "llm_error", False),
        (ndjson(said(content="half"), hang=True), "llm_timeout", True),
    ],
)
async def test_failures(
    server: WireServer, answer: Answer, error_type: str, is_transient: bool
) -> None:
    server.on(SHOW, shown()).on(CHAT, answer)
    error = await failure(server, timeout_seconds=0.3)
    assert (error.error_type, error.is_transient) == (error_type, is_transient)


async def test_refused_connection_says_how_to_start_it() -> None:
    with pytest.raises(ProviderError) as caught:
        await collect(provider("http://127.0.0.1:1"), ask())
    assert "cannot reach ollama at http://127.0.0.1:1" in caught.value.provider_detail
    assert "`ollama serve`. Check OLLAMA_BASE_URL." in caught.value.provider_detail


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_leaving_the_stream_closes_the_socket(server: WireServer, is_cancelled: bool) -> None:
    server.on(SHOW, shown()).on(CHAT, ndjson(said(content="w"), hang=True))
    stream = provider(server.url).stream(ask())
    assert await anext(stream) == TextDelta("w")
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


def test_listing_asks_for_details_once_and_leaves_out_embedding_models(server: WireServer) -> None:
    names = ("a:latest", "e", "old")
    details = {
        "a:latest": shown("tools", "vision", "insert"),
        "e": as_json({"capabilities": ["embedding"]}),
        "old": as_json({"model_info": {}}),
    }
    server.on(TAGS, as_json({"models": [{"name": n, "model": n, "digest": n} for n in names]}))
    server.on(SHOW, lambda body: details[body["model"]])
    ollama = provider(server.url)
    for _ in range(2):
        assert [(m.handle, m.context_window, m.capabilities) for m in ollama.list_models()] == [
            ("ollama/a:latest", 8192, {"tools", "vision"}),
            ("ollama/old", 30000, None),
        ]
    assert sorted(b["model"] for b in server.bodies(SHOW)) == sorted(names)


def test_model_whose_details_fail_is_listed_all_the_same(server: WireServer) -> None:
    server.on(TAGS, as_json({"models": [{"name": "a", "digest": "1"}]}))
    server.on(SHOW, as_json({"error": "boom"}, 500), shown("tools"))
    ollama = provider(server.url)
    assert [m.context_window for m in ollama.list_models()] == [30000]
    assert [m.context_window for m in ollama.list_models()] == [8192]  # asked again
