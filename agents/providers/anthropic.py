"""Anthropic's models, over plain HTTP (decision 0005): the list here, one streamed call below.

`anthropic_request` shapes the prompt, `anthropic_events` reads the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx

from agents.providers import errors, transport
from agents.providers.anthropic_events import EventReader
from agents.providers.anthropic_request import payload
from agents.providers.base import ChatRequest, Delta, ModelInfo, join_url
from agents.providers.errors import Endpoint
from agents.providers.model_hints import told_capabilities
from agents.providers.openai import positive_int

ANTHROPIC_URL = "https://api.anthropic.com"
ANTHROPIC_VERSION = "2023-06-01"
CONTEXT_WINDOW_TOKENS = 200_000  # of the models of a list that tells none
_LISTED_AT_ONCE = 1000  # the largest page; there are some twenty models
# All its models have both; older lists do not tell.
_USUAL = frozenset({"tools", "vision"})


class AnthropicProvider:
    """One endpoint with Anthropic's Messages protocol; its URL ends with `/v1`."""

    provider_type = "anthropic"

    def __init__(self, endpoint: Endpoint, *, timeout_seconds: float) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.timeout_seconds = timeout_seconds
        self._without_temperature: set[str] = set()

    def list_models(self) -> list[ModelInfo]:
        """As ChatProvider says."""
        url = join_url(self.endpoint.url, f"models?limit={_LISTED_AT_ONCE}")
        answer = transport.ask(self.endpoint, "GET", url)
        with errors.understanding(self.endpoint):
            return [self._model(entry) for entry in answer["data"] if entry.get("id")]

    def _model(self, entry: dict[str, Any]) -> ModelInfo:
        name = str(entry["id"])
        return ModelInfo(
            handle=f"{self.name}/{name}",
            name=name,
            provider_name=self.name,
            provider_type=self.provider_type,
            endpoint_type="anthropic",
            endpoint=self.endpoint.shown_url,
            context_window=positive_int(entry.get("max_input_tokens")) or CONTEXT_WINDOW_TOKENS,
            display_name=str(entry.get("display_name") or name),
            max_output_tokens=positive_int(entry.get("max_tokens")) or 16384,
            capabilities=told_capabilities(entry) or _USUAL,
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """As ChatProvider says."""
        reader = EventReader(self.endpoint)
        try:
            async with aclosing(self._events(request)) as events:
                async for event in events:
                    with errors.understanding(self.endpoint):
                        found = reader.read(event)
                    for delta in found:
                        yield delta
            for delta in reader.end():
                yield delta
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise errors.from_transport(
                self.endpoint, exc, timeout_seconds=self.timeout_seconds, started=reader.started
            ) from exc

    async def _events(self, request: ChatRequest) -> AsyncGenerator[dict[str, Any], None]:
        body = payload(request)
        if request.model in self._without_temperature:
            body.pop("temperature", None)
        async with transport.async_client(self.endpoint.url, self.timeout_seconds) as client:
            response = await self._send(client, body)
            chunks = response.aiter_bytes()
            async with aclosing(transport.lines(self.endpoint, chunks)) as lines:
                async for line in lines:
                    field, _, value = line.partition(b":")
                    if field == b"data" and value.strip():
                        yield transport.json_line(self.endpoint, value.strip())

    async def _send(self, client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response:
        """Give the opened event stream. Newer models refuse any temperature: then once without."""
        url = join_url(self.endpoint.url, "messages")
        headers = transport.headers_of(self.endpoint)
        request = client.build_request("POST", url, json=body, headers=headers)
        response = await client.send(request, stream=True)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code < 400 and kind in ("text/event-stream", ""):
            return response
        if response.status_code < 400:
            raise errors.not_understood(
                self.endpoint, f"the answer is {kind} instead of an event stream"
            )
        text = transport.status_text(response.status_code, await response.aread())
        if response.status_code == 400 and "temperature" in body and "temperature" in text:
            self._without_temperature.add(body["model"])
            return await self._send(client, {k: v for k, v in body.items() if k != "temperature"})
        wait = transport.retry_after(response.headers)
        raise errors.from_status(
            self.endpoint, response.status_code, text, retry_after_seconds=wait
        )
