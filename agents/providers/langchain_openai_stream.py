"""One streamed call to an OpenAI-compatible server through LangChain's ChatOpenAI; workers only.

ChatOpenAI shapes the request; it is sent and read here as plain JSON. Sending through its client
walked every message of the history (a fifth of a turn's CPU time at 60 messages), and through the
client's chunk objects a token cost 200 µs, this way 30 µs. Fields that those objects or LangChain
drop (reasoning, calls without index, error frames) come through.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import httpx
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from agents.providers import errors, transport
from agents.providers.base import ChatRequest, Delta, join_url
from agents.providers.errors import Endpoint
from agents.providers.langchain_messages import to_langchain
from agents.providers.openai_chunks import ChunkReader

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # OpenAI refuses other names of participants


async def stream_chat(
    endpoint: Endpoint, request: ChatRequest, timeout_seconds: float
) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of one call; raises ProviderError. See ChatProvider.stream."""
    reader = ChunkReader(endpoint)
    body, headers = _payload(endpoint, request), transport.headers_of(endpoint)
    url = join_url(endpoint.url, "chat/completions")
    try:
        async with (
            transport.async_client(endpoint.url, timeout_seconds) as client,
            client.stream("POST", url, json=body, headers=headers) as response,
            aclosing(_chunks(endpoint, response)) as chunks,
        ):
            await transport.raise_for_status(endpoint, response)
            async for chunk in chunks:
                with errors.understanding(endpoint):
                    found = reader.read(chunk)
                for delta in found:
                    yield delta
        for delta in reader.end():
            yield delta
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise errors.from_transport(
            endpoint, exc, timeout_seconds=timeout_seconds, started=reader.started
        ) from exc


@lru_cache(maxsize=64)  # making one costs 3 ms
def _chat_model(url: str, model: str, temperature: float | None) -> ChatOpenAI:
    """Give LangChain's model, which shapes requests here and sends none."""
    return ChatOpenAI(
        model=model,
        base_url=url,
        api_key=SecretStr("none"),
        temperature=temperature,
        use_responses_api=False,
        openai_proxy=None,  # else OPENAI_PROXY in the environment makes it refuse our client
        http_async_client=httpx.AsyncClient(verify=transport.ssl_context()),
        http_client=httpx.Client(verify=transport.ssl_context()),
    )


def _payload(endpoint: Endpoint, request: ChatRequest) -> dict[str, Any]:
    """Give the JSON body."""
    model = _chat_model(endpoint.url, request.model, request.temperature)
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    if request.tools:
        options["tools"] = [{"type": "function", "function": tool} for tool in request.tools]
        if request.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = request.parallel_tool_calls
    if request.response_format is not None:
        options["response_format"] = dict(request.response_format)
    payload: dict[str, Any] = model._get_request_payload(to_langchain(request.messages), **options)
    for message in payload["messages"]:
        if not _NAME.fullmatch(message.get("name") or ""):
            message.pop("name", None)
    if request.max_tokens is not None:
        # OpenAI's newer models refuse the old name, most other servers ignore the new one.
        is_openai = urlsplit(endpoint.url).hostname == "api.openai.com"
        payload["max_completion_tokens" if is_openai else "max_tokens"] = request.max_tokens
    return payload


async def _chunks(
    endpoint: Endpoint, response: httpx.Response
) -> AsyncGenerator[dict[str, Any], None]:
    """Give the JSON objects of an event stream, or the one object of a server that ignores
    `stream`.
    """
    kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if kind == "application/json":
        yield transport.json_line(endpoint, await response.aread())
        return
    if kind == "text/html":
        raise errors.not_understood(
            endpoint, "the answer is a web page; the base URL often needs /v1"
        )
    async for data, is_error in _events(transport.lines(endpoint, response.aiter_bytes())):
        if data == b"[DONE]":
            yield {"done": True}
            return
        chunk = transport.json_line(endpoint, data)
        yield {"error": chunk} if is_error and "error" not in chunk else chunk


async def _events(lines: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, bool]]:
    """Give (data, is it an error) per data line; llama.cpp has sent errors as `error:` lines."""
    is_error = False
    async for line in lines:
        field, _, value = line.partition(b":")
        if field == b"event":
            is_error = value.strip() == b"error"
        elif field == b"error" or (field == b"data" and value.strip()):
            yield value.strip(), is_error or field == b"error"
        elif not line:
            is_error = False


def warm_up() -> None:
    """Build one model and its payload, so that the first turn does not pay for lazy imports."""
    endpoint = Endpoint("warm-up", "OpenAI", "http://127.0.0.1/v1")
    transport.async_client(endpoint.url, 1)
    json.dumps(_payload(endpoint, ChatRequest(model="warm-up", messages=[])))
