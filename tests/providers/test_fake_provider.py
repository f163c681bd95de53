"""The public double keeps the promises of ChatProvider."""

from __future__ import annotations

import asyncio

import pytest

from agents.providers.base import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from souveraine.errors import ProviderError
from souveraine.testing.fake_provider import Call, FakeProvider, Reply
from tests.providers.conftest import ask, collect


async def test_it_plays_replies_in_order_and_records_requests() -> None:
    fake = FakeProvider().enqueue(
        "one two", Reply(reasoning="hmm", tool_calls=[Call("look", {"a": 1})])
    )
    assert await collect(fake, ask(text="first of all")) == [
        TextDelta("one"),
        TextDelta(" two"),
        UsageDelta(3, 2, 5),
        FinishDelta("stop"),
    ]
    reasoning, start, rest, _, finish = await collect(fake, ask(text="second"))
    assert reasoning == ReasoningDelta("hmm")
    assert isinstance(start, ToolCallDelta)
    assert isinstance(rest, ToolCallDelta)
    assert (start.id, start.name, start.arguments + rest.arguments) == (
        "call_fake_2_0",
        "look",
        '{"a": 1}',
    )
    assert finish == FinishDelta("tool_calls")
    assert [r.messages[0].content for r in fake.requests] == ["first of all", "second"]
    assert fake.pending == 0
    assert (await collect(fake, ask()))[0] == TextDelta("Hello")


async def test_error_comes_after_the_given_deltas() -> None:
    error = ProviderError("llm_error", "broke", is_transient=True)
    fake = FakeProvider().enqueue(Reply(text="a b c", error=error, error_after=2))
    got: list[Delta] = []
    with pytest.raises(ProviderError) as caught:
        await collect(fake, ask(), got)
    assert caught.value is error
    assert got == [TextDelta("a"), TextDelta(" b")]
    assert (fake.calls[0].sent, fake.calls[0].is_finished) == (2, False)


async def test_closing_and_cancelling_are_seen() -> None:
    fake = FakeProvider().enqueue(Reply(text="a b", hangs=True), Reply(text="a b"))
    task = asyncio.ensure_future(collect(fake, ask()))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stream = fake.stream(ask())
    await anext(stream)
    await stream.aclose()
    assert [(call.sent, call.is_closed_early) for call in fake.calls] == [(2, True), (1, True)]


async def test_reply_can_be_made_out_of_the_request_and_calls_run_side_by_side() -> None:
    fake = FakeProvider(default=Reply(text="x"))
    fake.enqueue(*[lambda request: Reply(text=str(request.messages[-1].content))] * 20)
    texts = await asyncio.gather(*(collect(fake, ask(text=str(i))) for i in range(20)))
    assert [deltas[0] for deltas in texts] == [TextDelta(str(i)) for i in range(20)]
