"""One streamed call to an OpenAI-compatible server through LangChain's ChatOpenAI; workers only.

ChatOpenAI shapes the request and its client sends it. The answer is read as plain JSON lines:
through the client's own chunk objects a token cost 200 µs of CPU, this way 30 µs, and fields that
those objects or LangChain drop (reasoning, calls without index, error frames) come through.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from agents.providers import errors, transport
from agents.providers.base import ChatRequest, Delta
from agents.providers.errors import Endpoint
from agents.providers.langchain_messages import to_langchain
from agents.providers.openai_chunks import ChunkReader

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # OpenAI refuses other names of participants


async def stream_chat(
    endpoint: Endpoint, request: ChatRequest, timeout_seconds: float
) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of one call; raises ProviderError. See ChatProvider.stream."""
    reader = ChunkReader(endpoint)
    try:
        async with (
            transport.async_client(endpoint.url, timeout_seconds) as client,
            _opened(endpoint, request, client) as response,
            aclosing(_chunks(endpoint, response)) as chunks,
        ):
            async for chunk in chunks:
                with errors.understanding(endpoint):
                    found = reader.read(chunk)
                for delta in found:
                    yield delta
        for delta in reader.end():
            yield delta
    except openai.APIStatusError as exc:
        text = transport.status_text(exc.status_code, exc.response.content)
        raise errors.from_status(
            endpoint,
            exc.status_code,
            text,
            retry_after_seconds=transport.retry_after(exc.response.headers),
        ) from exc
    except openai.APIConnectionError as exc:
        cause = exc.__cause__
        if not isinstance(cause, httpx.HTTPError):
            cause = httpx.ReadError(str(exc))
        raise errors.from_transport(
            endpoint, cause, timeout_seconds=timeout_seconds, started=reader.started
        ) from exc
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise errors.from_transport(
            endpoint, exc, timeout_seconds=timeout_seconds, started=reader.started
        ) from exc


def _opened(
    endpoint: Endpoint, request: ChatRequest, client: httpx.AsyncClient
) -> AbstractAsyncContextManager[Any]:
    model = _chat_model(endpoint, request, client)
    create = model.async_client.with_streaming_response.create
    opened: AbstractAsyncContextManager[Any] = create(
        **_payload(endpoint, model, request),
        extra_headers=_headers(endpoint),
        timeout=client.timeout,
    )
    return opened


def _headers(endpoint: Endpoint) -> dict[str, str | openai.Omit]:
    """Give our headers. Without a key none is sent: a gateway might take a placeholder for one."""
    absent: dict[str, str | openai.Omit] = {"Authorization": openai.Omit()}
    return absent | transport.headers_of(endpoint)


def _chat_model(endpoint: Endpoint, request: ChatRequest, client: httpx.AsyncClient) -> ChatOpenAI:
    return ChatOpenAI(
        model=request.model,
        base_url=endpoint.url,
        api_key=SecretStr(endpoint.api_key or "none"),  # the client wants one; see _headers
        temperature=request.temperature,
        max_retries=0,  # the turn engine retries, before any token and shown to the user
        timeout=client.timeout.read,  # a number: LangChain makes a TLS context per other object
        use_responses_api=False,
        openai_proxy=None,  # else OPENAI_PROXY in the environment makes it refuse our client
        http_async_client=client,
    )


def _payload(endpoint: Endpoint, model: ChatOpenAI, request: ChatRequest) -> dict[str, Any]:
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
    # As extra_body, so that the client sends every key as it stands.
    return {
        "model": payload.pop("model"),
        "messages": payload.pop("messages"),
        "stream": True,
        "extra_body": payload,
    }


async def _chunks(endpoint: Endpoint, response: Any) -> AsyncGenerator[dict[str, Any], None]:
    """Give the JSON objects of an event stream, or the one object of a server that ignores
    `stream`.
    """
    kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if kind == "application/json":
        yield transport.json_line(endpoint, await response.read())
        return
    if kind == "text/html":
        raise errors.not_understood(
            endpoint, "the answer is a web page; the base URL often needs /v1"
        )
    async for data, is_error in _events(transport.lines(endpoint, response.iter_bytes())):
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
    client = transport.async_client(endpoint.url, 1)
    request = ChatRequest(model="warm-up", messages=[])
    json.dumps(_payload(endpoint, _chat_model(endpoint, request, client), request)["messages"])
