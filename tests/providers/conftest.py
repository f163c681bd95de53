from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from agents.providers.base import ChatMessage, ChatProvider, ChatRequest, Delta
from tests.providers.wire import WireServer


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer() as running:
        yield running


def ask(model: str = "m", text: str = "hello", **more: Any) -> ChatRequest:
    return ChatRequest(model=model, messages=[ChatMessage("user", text)], **more)


async def collect(
    provider: ChatProvider, request: ChatRequest, into: list[Delta] | None = None
) -> list[Delta]:
    """Give all deltas; `into` keeps those that came before an error."""
    found = [] if into is None else into
    async with aclosing(provider.stream(request)) as deltas:
        async for item in deltas:
            found.append(item)
    return found
