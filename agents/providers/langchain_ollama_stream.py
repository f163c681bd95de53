"""One streamed call to Ollama through LangChain's ChatOllama; workers only.

ChatOllama shapes the request (messages, options, `think`, `format`). It is sent and read here as
plain JSON, because Ollama's client drops nested tool schemas and call ids, and splits lines inside
strings.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import httpx
from langchain_ollama import ChatOllama

from agents.providers import errors, transport
from agents.providers.base import (
    ChatRequest,
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    count_of,
    join_url,
)
from agents.providers.errors import Endpoint
from agents.providers.langchain_messages import to_langchain
from agents.providers.ollama import ModelDetails, read_details
from souveraine.errors import ProviderError

logger = logging.getLogger(__name__)
CHARS_PER_TOKEN = 4.0
MIN_CHECKED_TOKENS = 500  # below, the template's own tokens make the estimate worthless
MIN_READ_SHARE = 0.5  # code and long words have up to 6 characters per token


async def stream_chat(
    endpoint: Endpoint, request: ChatRequest, timeout_seconds: float
) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of one call; raises ProviderError. See ChatProvider.stream."""
    reader = PartReader(endpoint)
    try:
        async with transport.async_client(endpoint.url, timeout_seconds) as client:
            payload = _payload(endpoint, request, await _details(endpoint, client, request.model))
            url = join_url(endpoint.url, "api/chat")
            async with client.stream(
                "POST", url, json=payload, headers=transport.headers_of(endpoint)
            ) as response:
                await _raise_for_status(endpoint, request.model, response)
                async with aclosing(transport.lines(endpoint, response.aiter_bytes())) as lines:
                    async for line in lines:
                        if not line.strip():
                            continue
                        with errors.understanding(endpoint):
                            found = reader.read(transport.json_line(endpoint, line))
                        for delta in found:
                            yield delta
        for delta in reader.end():
            _warn_when_cut(endpoint, request, payload, delta)
            yield delta
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise errors.from_transport(
            endpoint, exc, timeout_seconds=timeout_seconds, started=reader.started
        ) from exc


def _warn_when_cut(
    endpoint: Endpoint, request: ChatRequest, payload: Mapping[str, Any], delta: Delta
) -> None:
    """Log when Ollama has read far less than was sent: it cuts long prompts without an error."""
    if not isinstance(delta, UsageDelta) or not delta.prompt_tokens:
        return  # left out when the whole prompt was cached
    sent_tokens = int(sum(_chars(m.content) for m in request.messages) / CHARS_PER_TOKEN)
    if sent_tokens < MIN_CHECKED_TOKENS or delta.prompt_tokens >= sent_tokens * MIN_READ_SHARE:
        return
    logger.warning(
        "event=prompt_cut provider=%s model=%s prompt_eval_count=%d estimate=%d num_ctx=%s "
        "advice=lower the agent's context window, or give Ollama a larger one",
        endpoint.name,
        request.model,
        delta.prompt_tokens,
        sent_tokens,
        (payload.get("options") or {}).get("num_ctx"),
    )


def _chars(content: str | list[dict[str, Any]]) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(str(part.get("text", ""))) for part in content)


async def _details(endpoint: Endpoint, client: httpx.AsyncClient, model: str) -> ModelDetails:
    """Ask each time: it takes 1 ms, and a model of the same name may have been pulled anew."""
    url = join_url(endpoint.url, "api/show")
    response = await client.post(url, json={"model": model}, headers=transport.headers_of(endpoint))
    if response.status_code == 404 and not _is_missing_model(response):
        return ModelDetails(None, None)  # a server without /api/show
    await _raise_for_status(endpoint, model, response)
    return read_details(transport.json_line(endpoint, response.content))


def _is_missing_model(response: httpx.Response) -> bool:
    return "model" in response.text.lower() and "not found" in response.text.lower()


async def _raise_for_status(endpoint: Endpoint, model: str, response: httpx.Response) -> None:
    if response.status_code < 400:
        return
    content = await response.aread()
    if response.status_code == 404 and _is_missing_model(response):
        text = transport.status_text(response.status_code, content)
        raise errors.bad_request(endpoint, text, f"fetch the model first: ollama pull {model}")
    await transport.raise_for_status(endpoint, response)


def _payload(endpoint: Endpoint, request: ChatRequest, details: ModelDetails) -> dict[str, Any]:
    known = details.capabilities
    chat = ChatOllama(
        model=request.model,
        base_url=endpoint.url,
        num_ctx=min(request.context_window, details.context_length or request.context_window),
        temperature=request.temperature,
        num_predict=request.max_tokens,
        reasoning=True if known and "thinking" in known else None,
        client_kwargs={"verify": transport.ssl_context(), "trust_env": False},
    )
    options: dict[str, Any] = {}
    if request.tools and (known is None or "tools" in known):
        options["tools"] = [{"type": "function", "function": tool} for tool in request.tools]
    if request.response_format is not None:
        options["response_format"] = dict(request.response_format)
    messages = to_langchain(request.messages, inline_images_only=True)
    payload = {k: v for k, v in chat._chat_params(messages, **options).items() if v is not None}
    for sent, message in zip(payload["messages"], request.messages, strict=True):
        if message.role == "tool" and message.name:
            sent["tool_name"] = message.name  # LangChain leaves it out; Ollama's templates use it
    return payload


class PartReader:
    """Reads the parts of one answer in order. `started` is true once any delta came out."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.started = False
        self._endpoint = endpoint
        self._calls = 0
        self._last: dict[str, Any] | None = None

    def read(self, part: dict[str, Any]) -> list[Delta]:
        """Give what one part adds. Raises ProviderError for an error part."""
        if part.get("error"):
            raise self._error(part)
        if part.get("done"):
            self._last = part
        message = part.get("message")
        message = message if isinstance(message, dict) else {}
        deltas: list[Delta] = []
        if message.get("thinking"):
            deltas.append(ReasoningDelta(str(message["thinking"])))
        if message.get("content"):
            deltas.append(TextDelta(str(message["content"])))
        deltas.extend(self._call(call) for call in message.get("tool_calls") or [])
        self.started = self.started or bool(deltas)
        return deltas

    def end(self) -> list[Delta]:
        """Give usage and finish. Raises ProviderError when the last part did not come."""
        if self._last is None:
            raise errors.cut(
                self._endpoint,
                "the stream ended before the answer was complete",
                started=self.started,
            )
        reason = self._last.get("done_reason")
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        return [*_usage(self._last), FinishDelta(reason)]

    def _call(self, call: dict[str, Any]) -> ToolCallDelta:
        function = call.get("function") or {}
        arguments = function.get("arguments")
        text = (
            arguments
            if isinstance(arguments, str)
            else json.dumps(arguments or {}, ensure_ascii=False)
        )
        index, self._calls = self._calls, self._calls + 1
        call_id = call.get("id") or function.get("id") or f"call_{uuid4().hex}"
        return ToolCallDelta(index, call_id, function.get("name"), text)

    def _error(self, part: Mapping[str, Any]) -> ProviderError:
        return errors.from_error_frame(self._endpoint, str(part["error"]), part.get("status"))


def _usage(last: Mapping[str, Any]) -> list[Delta]:
    prompt, completion = last.get("prompt_eval_count"), last.get("eval_count")
    if prompt is None and completion is None:
        return []
    # Ollama leaves out prompt_eval_count when the whole prompt was cached.
    prompt, completion = count_of(prompt) or 0, count_of(completion) or 0
    return [UsageDelta(prompt, completion, prompt + completion)]


def warm_up() -> None:
    """Build one request, so that the first turn does not pay for lazy imports."""
    endpoint = Endpoint("warm-up", "Ollama", "http://127.0.0.1")
    _payload(endpoint, ChatRequest(model="warm-up", messages=[]), ModelDetails(None, None))
