"""OpenAI's wire and its dialects → deltas, requests and errors."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from agents.providers import transport
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
from agents.providers.openai import OpenAIProvider
from souveraine.errors import ProviderError
from tests.providers.conftest import ask, collect
from tests.providers.wire import Answer, WireServer, as_json, delta, sse

CHAT = "/v1/chat/completions"
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    },
}


def provider(url: str, timeout_seconds: float = 5.0) -> OpenAIProvider:
    endpoint = Endpoint(
        "openai",
        "OpenAI",
        f"{url}/v1",
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
        api_key="sk-secret-key",
    )
    return OpenAIProvider(endpoint, timeout_seconds=timeout_seconds, default_context_window=30000)


async def failure(
    server: WireServer, request: ChatRequest | None = None, **more: Any
) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await collect(provider(server.url, **more), request or ask())
    assert "openai at" in caught.value.provider_detail
    assert server.url in caught.value.provider_detail
    assert "sk-secret-key" not in caught.value.provider_detail
    return caught.value


async def test_it_works(server: WireServer) -> None:
    server.on(
        CHAT,
        sse(
            delta(role="assistant", content=""),
            delta(content="Hel"),
            delta(content="lo"),
            delta("stop"),
            USAGE,
        ),
    )
    assert await collect(provider(server.url), ask()) == [
        TextDelta("Hel"),
        TextDelta("lo"),
        UsageDelta(5, 2, 7, 3, 1),
        FinishDelta("stop"),
    ]
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret-key"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_comes_through(server: WireServer, field: str) -> None:
    server.on(CHAT, sse(delta(**{field: "hmm"}), delta(content="yes"), delta("stop")))
    assert (await collect(provider(server.url), ask()))[:2] == [
        ReasoningDelta("hmm"),
        TextDelta("yes"),
    ]


async def test_parallel_tool_calls_keep_ids_names_and_pieces_apart(server: WireServer) -> None:
    def piece(index: int, arguments: str, **head: Any) -> dict[str, Any]:
        name = {"name": head.pop("name")} if "name" in head else {}
        return {"index": index, "function": {"arguments": arguments, **name}, **head}

    server.on(
        CHAT,
        sse(
            delta(
                tool_calls=[piece(0, "", id="a", name="look"), piece(1, "", id="b", name="hear")]
            ),
            delta(tool_calls=[piece(1, '{"y":')]),
            delta(tool_calls=[piece(0, '{"x":1}')]),
            delta(tool_calls=[piece(1, "2}")]),
            delta("tool_calls"),
        ),
    )
    deltas = await collect(provider(server.url), ask(tools=[TOOL], parallel_tool_calls=True))
    assert deltas == [
        ToolCallDelta(0, "a", "look", ""),
        ToolCallDelta(1, "b", "hear", ""),
        ToolCallDelta(1, arguments='{"y":'),
        ToolCallDelta(0, arguments='{"x":1}'),
        ToolCallDelta(1, arguments="2}"),
        FinishDelta("tool_calls"),
    ]
    assert server.bodies(CHAT)[0]["tools"] == [{"type": "function", "function": TOOL}]
    assert server.bodies(CHAT)[0]["parallel_tool_calls"] is True


async def test_calls_that_share_one_index_or_have_none_stay_two_calls(server: WireServer) -> None:
    def whole(name: str, **more: Any) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": {"n": name}}, **more}

    server.on(
        CHAT,
        sse(
            delta(tool_calls=[whole("a", index=0, id="1")]),
            delta(tool_calls=[whole("b", index=0, id="2")]),
            delta("tool_calls"),
        ),
        sse(delta(tool_calls=[whole("a"), whole("b")]), delta("tool_calls")),
    )
    for _ in range(2):
        calls = [
            d for d in await collect(provider(server.url), ask()) if isinstance(d, ToolCallDelta)
        ]
        assert [(c.index, c.name, json.loads(c.arguments)) for c in calls] == [
            (0, "a", {"n": "a"}),
            (1, "b", {"n": "b"}),
        ]
        assert len({c.id for c in calls}) == 2
        assert all(c.id for c in calls)


async def test_line_separators_inside_text_and_split_bytes_survive(server: WireServer) -> None:
    text = "a\u2028b\x85c ü"
    raw = b"data: " + json.dumps(delta(content=text), ensure_ascii=False).encode() + b"\r\n\r\n"
    server.on(
        CHAT, sse(b": comment\n\n", *[raw[i : i + 7] for i in range(0, len(raw), 7)], delta("stop"))
    )
    assert (await collect(provider(server.url), ask()))[0] == TextDelta(text)


async def test_server_that_ignores_stream_is_understood(server: WireServer) -> None:
    server.on(
        CHAT, as_json({"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]})
    )
    assert await collect(provider(server.url), ask()) == [TextDelta("whole"), FinishDelta("stop")]


async def test_request_carries_history_images_and_limits(server: WireServer) -> None:
    server.on(CHAT, sse(delta("stop")))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0"}}
    messages = [
        ChatMessage("system", "Be brief."),
        ChatMessage("user", [{"type": "text", "text": "see"}, image], name="Ann Other"),
        ChatMessage(
            "assistant",
            "",
            (ToolCallRequest("c1", "look", '{"a": 1}'), ToolCallRequest("c2", "look", "{bad")),
        ),
        ChatMessage("tool", "seen", tool_call_id="c1", name="look"),
        ChatMessage("tool", "Error: no JSON", tool_call_id="c2", name="look", is_error=True),
        ChatMessage(
            "user", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], name="ann"
        ),
    ]
    await collect(
        provider(server.url),
        ChatRequest(
            "m", messages, temperature=0.5, max_tokens=9, response_format={"type": "json_object"}
        ),
    )
    body = server.bodies(CHAT)[0]
    sent = body.pop("messages")
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 9,
        "response_format": {"type": "json_object"},
    }
    assert sent[0] == {"role": "system", "content": "Be brief."}
    assert sent[1]["content"][1]["image_url"]["url"] == "data:image/gif;base64,R0"
    assert "name" not in sent[1]  # OpenAI refuses a name with a space
    assert [json.loads(c["function"]["arguments"]) for c in sent[2]["tool_calls"]] == [
        {"a": 1},
        {"malformed_arguments": "{bad"},
    ]
    assert sent[4] == {"role": "tool", "content": "Error: no JSON", "tool_call_id": "c2"}
    assert sent[5] == {"role": "user", "content": "one\ntwo", "name": "ann"}


@pytest.mark.parametrize(
    ("status", "message", "error_type", "prefix", "is_transient"),
    [
        (
            401,
            "no sk-secret-key",
            "llm_authentication",
            "UNAUTHENTICATED: Authentication failed with OpenAI: Error code: 401 - {'error'",
            False,
        ),
        (403, "no", "llm_authentication", "UNAUTHENTICATED: ", False),
        (402, "pay", "llm_insufficient_credits", "PAYMENT_REQUIRED: ", False),
        (
            429,
            "slow down",
            "llm_rate_limit",
            "RATE_LIMIT_EXCEEDED: Rate limited by OpenAI: Error code: 429",
            True,
        ),
        (429, "insufficient_quota", "llm_insufficient_credits", "PAYMENT_REQUIRED: ", False),
        (
            400,
            "bad",
            "llm_bad_request",
            "INVALID_ARGUMENT: Bad request to OpenAI-compatible endpoint: Error code: 400",
            False,
        ),
        (404, "no model m", "llm_bad_request", "INVALID_ARGUMENT: ", False),
        (422, "bad", "llm_bad_request", "INVALID_ARGUMENT: ", False),
        (
            400,
            "exceeds the available context size",
            "context_window_overflow",
            "INVALID_ARGUMENT: ",
            False,
        ),
        (
            400,
            "maximum context length is 5",
            "context_window_overflow",
            "INVALID_ARGUMENT: ",
            False,
        ),
        (
            500,
            "boom",
            "llm_error",
            "INTERNAL_SERVER_ERROR: OpenAI API error: Error code: 500 - {'error'",
            True,
        ),
        (503, "loading", "llm_error", "INTERNAL_SERVER_ERROR: ", True),
        (504, "late", "llm_timeout", "DEADLINE_EXCEEDED: ", True),
    ],
)
async def test_statuses_become_the_contracts_error_types(
    server: WireServer, status: int, message: str, error_type: str, prefix: str, is_transient: bool
) -> None:
    server.on(CHAT, as_json({"error": {"message": message}}, status))
    error = await failure(server)
    assert (error.error_type, error.is_transient) == (error_type, is_transient)
    assert error.provider_detail.startswith(prefix)
    assert len(server.requests) == 1  # retries are the turn engine's business


async def test_rate_limit_keeps_the_servers_waiting_time(server: WireServer) -> None:
    server.on(CHAT, as_json({"error": {"message": "slow"}}, 429, headers={"Retry-After": "7"}))
    assert (await failure(server)).data["retry_after_seconds"] == 7


async def test_error_frame_in_mid_stream_comes_after_the_text(server: WireServer) -> None:
    server.on(
        CHAT, sse(delta(content="half"), {"error": {"message": "broke", "code": 500}}, done=False)
    )
    got: list[Delta] = []
    with pytest.raises(ProviderError) as caught:
        await collect(provider(server.url), ask(), got)
    assert got == [TextDelta("half")]
    assert caught.value.error_type == "llm_error"
    assert "OpenAI API error: broke" in caught.value.provider_detail


@pytest.mark.parametrize(
    "raw", [b'error: {"message": "broke"}\n\n', b'event: error\ndata: {"message": "broke"}\n\n']
)
async def test_other_dialects_of_error_frames(server: WireServer, raw: bytes) -> None:
    server.on(CHAT, sse(raw, done=False))
    assert "broke" in (await failure(server)).provider_detail


@pytest.mark.parametrize("cut", [True, False])
async def test_stream_that_ends_early_is_an_error(server: WireServer, cut: bool) -> None:
    server.on(CHAT, sse(delta(content="half"), done=False, cut=cut))
    error = await failure(server)
    assert (error.error_type, error.is_transient) == ("llm_error", True)
    assert "Connection error during OpenAI streaming" in error.provider_detail


async def test_silence_is_a_timeout(server: WireServer) -> None:
    server.on(CHAT, sse(delta(content="half"), done=False, hang=True))
    error = await failure(server, timeout_seconds=0.2)
    assert (error.error_type, error.is_transient) == ("llm_timeout", True)
    assert "SOUVERAINE_MODEL_TIMEOUT_SECONDS" in error.provider_detail


async def test_web_page_and_garbage_name_the_setting(server: WireServer) -> None:
    server.on(
        CHAT, Answer([b"<html>"], content_type="text/html"), sse(b"data: {oops\n\n", done=False)
    )
    assert "OPENAI_BASE_URL" in (await failure(server)).provider_detail
    assert "{oops" in (await failure(server)).provider_detail


async def test_refused_connection_says_where_and_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    for call in (
        lambda: collect(provider(url), ask()),
        lambda: asyncio.to_thread(provider(url).list_models),
    ):
        with pytest.raises(ProviderError) as caught:
            await call()
        assert caught.value.error_type == "llm_error"
        assert caught.value.is_transient
        detail = caught.value.provider_detail
        assert detail.startswith(f"Connection error: cannot reach openai at {url}/v1: ")
        assert detail.endswith("Is it running? Check OPENAI_BASE_URL.")


@pytest.mark.parametrize("way", ["aclose", "cancel in silence", "cancel before headers"])
async def test_leaving_the_stream_closes_the_socket(server: WireServer, way: str) -> None:
    before_headers = way == "cancel before headers"
    server.on(
        CHAT,
        sse(
            *([] if before_headers else [delta(content="w")]),
            done=False,
            hang=True,
            delay_seconds=0.3 if before_headers else 0,
        ),
    )
    stream = provider(server.url).stream(ask())
    if not before_headers:
        assert await anext(stream) == TextDelta("w")
    if way == "aclose":
        left_at = time.monotonic()
        await stream.aclose()
    else:
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.1)
        left_at = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.to_thread(server.disconnected.wait, 3)
    assert server.disconnected_at - left_at < 1.0


def test_listing_tells_windows_and_leaves_out_what_cannot_chat(server: WireServer) -> None:
    server.on(
        "/v1/models",
        as_json(
            {
                "data": [
                    {"id": "plain"},
                    {"id": "vllm", "max_model_len": 5000},
                    {
                        "id": "router",
                        "context_length": 6000,
                        "supported_parameters": ["tools", "reasoning"],
                        "architecture": {"input_modalities": ["text", "image"]},
                    },
                    {"id": "llama", "meta": {"n_ctx_train": 9000, "n_ctx": 7000}},
                    {"id": "trained", "meta": {"n_ctx_train": 9000}},
                    {"id": "text-embedding-3"},
                    {"id": "x", "type": "embedding"},
                    {"id": "whisper-1"},
                    {"id": "tts-1"},
                ]
            }
        ),
    )
    models = {m.handle: m for m in provider(server.url).list_models()}
    assert {h: m.context_window for h, m in models.items()} == {
        "openai/plain": 30000,
        "openai/vllm": 5000,
        "openai/router": 6000,
        "openai/llama": 7000,
        "openai/trained": 9000,
    }
    assert models["openai/router"].capabilities == {"tools", "thinking", "vision"}
    assert models["openai/plain"].capabilities is None
    assert models["openai/plain"].can("tools")


def test_llamacpps_runtime_window_wins_over_training(server: WireServer) -> None:
    server.on(
        "/v1/models",
        as_json({"data": [{"id": "q", "owned_by": "llamacpp", "meta": {"n_ctx_train": 32768}}]}),
    )
    server.on("/props", as_json({"default_generation_settings": {"n_ctx": 4096}}))
    assert provider(server.url).list_models()[0].context_window == 4096


def test_trickling_answer_ends_at_the_total_deadline(server: WireServer) -> None:
    server.on("/v1/models", Answer([b" "] * 20, pause_seconds=0.1))
    began = time.monotonic()
    endpoint = provider(server.url).endpoint
    with pytest.raises(ProviderError) as caught:
        transport.ask(endpoint, "GET", f"{endpoint.url}/models", total_seconds=0.3)
    assert caught.value.error_type == "llm_timeout"
    assert time.monotonic() - began < 1.5


def test_listing_of_an_unexpected_form_is_a_provider_error(server: WireServer) -> None:
    server.on(
        "/v1/models",
        *(as_json(v) for v in ({"data": 5}, {"data": ["x"]}, {"data": [{"id": "a", "meta": 1}]})),
    )
    for _ in range(3):
        with pytest.raises(ProviderError, match="LLM"):
            provider(server.url).list_models()


async def test_chunk_of_an_unexpected_form_is_a_provider_error(server: WireServer) -> None:
    server.on(CHAT, sse({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": 5}]}}]}))
    assert "unexpected form" in (await failure(server)).provider_detail


async def test_whole_calls_without_id_and_index_in_two_chunks_stay_two(server: WireServer) -> None:
    chunks = [delta(tool_calls=[{"function": {"name": n, "arguments": "{}"}}]) for n in "ab"]
    server.on(CHAT, sse(*chunks, delta("tool_calls")))
    calls = [d for d in await collect(provider(server.url), ask()) if isinstance(d, ToolCallDelta)]
    assert [(c.index, c.name, c.arguments) for c in calls] == [(0, "a", "{}"), (1, "b", "{}")]


async def test_host_that_takes_no_connection_fails_at_the_connect_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "CONNECT_TIMEOUT_SECONDS", 0.2)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        began = time.monotonic()
        with pytest.raises(ProviderError) as caught:
            await collect(provider(f"http://127.0.0.1:{full.getsockname()[1]}", 30), ask())
    assert caught.value.error_type == "llm_timeout"
    assert time.monotonic() - began < 3


async def test_own_machine_is_never_asked_through_a_proxy(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "OPENAI_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.on("/v1/models", as_json({"data": [{"id": "m"}]})).on(CHAT, sse(delta("stop")))
    assert await asyncio.to_thread(provider(server.url).list_models)
    assert await collect(provider(server.url), ask()) == [FinishDelta("stop")]
