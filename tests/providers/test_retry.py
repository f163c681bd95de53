"""Which failures are tried again, when, and when a fallback is asked; also in whole turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents.providers import registry
from agents.providers.bifrost import BifrostProvider
from agents.providers.errors import REPEATABLE_TIMEOUT, Endpoint
from agents.providers.retry import (
    BIFROST_RETRIES,
    MAX_RETRY_AFTER_SECONDS,
    Attempts,
    RetryPolicy,
)
from conversations.models import Run, Step
from souveraine.errors import ProviderError
from souveraine.testing.fake_provider import FakeProvider, Reply
from tests.conftest import Api, make_agent
from tests.providers.conftest import ask, collect
from tests.providers.wire import WireServer, as_json, delta, sse

CHAT = "/v1/chat/completions"


def failure(kind: str = "llm_error", *, is_transient: bool = True, **data: Any) -> ProviderError:
    error = ProviderError(kind, "broke", is_transient=is_transient)
    error.data.update(data)
    return error


def waits(policy: RetryPolicy, error: ProviderError, chance: float = 0.0) -> list[float]:
    attempts = Attempts(policy, "m", chance=lambda: chance)
    found: list[float] = []
    while (wait := attempts.after(error)) is not None:
        found.append(round(wait, 3))
    return found


def test_it_works() -> None:
    assert waits(RetryPolicy(), failure()) == [0.5, 1.0]


def test_bifrost_waits_from_300_ms_doubling_to_12_s_with_jitter() -> None:
    assert waits(BIFROST_RETRIES, failure()) == [0.3, 0.6, 1.2, 2.4, 4.8, 9.6]
    longer = RetryPolicy(8, 0.3, cap_seconds=12.0)
    assert waits(longer, failure())[-2:] == [12.0, 12.0]
    least = waits(BIFROST_RETRIES, failure(), chance=1.0)
    assert least == [0.225, 0.45, 0.9, 1.8, 3.6, 7.2]


def test_what_is_not_transient_ends_at_once() -> None:
    assert waits(BIFROST_RETRIES, failure("llm_bad_request", is_transient=False)) == []


def test_repeatable_timeout_is_tried_once_more() -> None:
    timeout = failure("llm_timeout", **{REPEATABLE_TIMEOUT: True})
    assert waits(BIFROST_RETRIES, timeout) == [0.3]
    assert waits(RetryPolicy(), timeout) == [0.5, 1.0], "only where the policy says so"
    attempts = Attempts(BIFROST_RETRIES, "m", chance=lambda: 0.0)
    mixed = [timeout, failure(), failure(), timeout]
    assert [attempts.after(error) for error in mixed] == [0.3, 0.6, 1.2, None]


def test_provider_may_ask_for_a_longer_wait_within_reason() -> None:
    assert waits(RetryPolicy(), failure(retry_after_seconds=7.0)) == [7.0, 7.0]
    assert waits(RetryPolicy(), failure(retry_after_seconds=0.1)) == [0.5, 1.0]
    assert waits(RetryPolicy(1), failure(retry_after_seconds=9e9)) == [MAX_RETRY_AFTER_SECONDS]


def test_fallbacks_follow_in_order_each_with_its_retries() -> None:
    attempts = Attempts(RetryPolicy(1), "a", ["b", "a", "c", "b"])
    asked = [attempts.model]
    while attempts.after(failure()) is not None:
        asked.append(attempts.model)
    assert asked == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize(
    ("kind", "falls_back"),
    [
        ("llm_insufficient_credits", True),
        ("llm_bad_request", False),
        ("llm_authentication", False),
        ("context_window_overflow", False),
    ],
)
def test_only_unavailability_leads_to_a_fallback(kind: str, falls_back: bool) -> None:
    attempts = Attempts(RetryPolicy(), "a", ["b"])
    assert (attempts.after(failure(kind, is_transient=False)) is not None) == falls_back
    assert attempts.model == ("b" if falls_back else "a")


@pytest.mark.parametrize(
    ("status", "body", "kind", "count"),
    [
        (408, "slow", "llm_timeout", 6),
        (429, "too fast", "llm_rate_limit", 6),
        (500, "boom", "llm_error", 6),
        (503, "no worker", "llm_error", 6),
        (504, "gateway", "llm_timeout", 1),
        (502, "upstream request timed out", "llm_error", 1),
        (429, "insufficient_quota", "llm_insufficient_credits", 0),
        (429, "You exceeded your current quota", "llm_insufficient_credits", 0),
        (429, "virtual key: budget exceeded", "llm_insufficient_credits", 0),
        (400, "bad", "llm_bad_request", 0),
        (401, "who", "llm_authentication", 0),
    ],
)
async def test_statuses_of_a_gateway(
    server: WireServer, status: int, body: str, kind: str, count: int
) -> None:
    server.on(CHAT, as_json({"error": {"message": body}}, status))
    with pytest.raises(ProviderError) as caught:
        await collect(bifrost(server.url), ask())
    assert caught.value.error_type == kind
    assert len(waits(BIFROST_RETRIES, caught.value)) == count


def bifrost(url: str, *fallbacks: str, **keys: Any) -> BifrostProvider:
    endpoint = Endpoint("bifrost", "Bifrost", f"{url}/v1", "BIFROST_BASE_URL", **keys)
    return BifrostProvider(
        endpoint, timeout_seconds=5, default_context_window=30000, fallbacks=fallbacks
    )


async def test_keys_go_out_and_none_is_made_up(server: WireServer) -> None:
    server.on(CHAT, sse(delta(content="x"), delta("stop"))).on("/v1/models", as_json({"data": []}))
    for keys in ({"api_key": "k1", "virtual_key": "vk-secret"}, {"virtual_key": "vk-secret"}, {}):
        provider = bifrost(server.url, **keys)
        await collect(provider, ask())
        provider.list_models()
    sent = [(s.headers.get("authorization"), s.headers.get("x-bf-vk")) for s in server.requests]
    pairs = [("Bearer k1", "vk-secret"), (None, "vk-secret"), (None, None)]
    assert sent == [pair for pair in pairs for _ in range(2)]


async def test_virtual_key_is_not_shown(server: WireServer) -> None:
    server.on(CHAT, as_json({"error": "key vk-secret is unknown"}, 401))
    provider = bifrost(server.url, virtual_key="vk-secret")
    with pytest.raises(ProviderError) as caught:
        await collect(provider, ask())
    assert "vk-secret" not in caught.value.provider_detail
    assert "vk-secret" not in repr(provider.endpoint)


def test_fallbacks_may_be_given_as_handles() -> None:
    assert bifrost("http://x", "openai/a", "bifrost/openai/b").fallbacks == ["openai/a", "openai/b"]


class Gateway(FakeProvider):
    """A scripted provider with a retry policy and two fallbacks."""

    retry_policy = RetryPolicy(1, first_delay_seconds=0.01)
    fallbacks = ("second", "third")


@pytest.fixture
def provider() -> Iterator[Gateway]:
    gateway = Gateway("fake", models=["fake-model", "second", "third"])
    with registry.override_providers({"fake": gateway}):
        registry.list_models()
        yield gateway


def send(api: Api, agent: dict[str, Any], content: Any = "x") -> Any:
    body = {"messages": [{"role": "user", "content": content}]}
    return api.post(f"/v1/agents/{agent['id']}/messages", body)


def test_turn_goes_on_with_a_fallback_and_says_which(api: Api, provider: Gateway) -> None:
    agent = make_agent(api)
    away = Reply(error=failure(), error_after=0)
    provider.enqueue(away, away, away, "Good day.")
    answer = send(api, agent)
    assert answer.json()["messages"][-1]["content"] == "Good day."
    asked = [request.model for request in provider.requests]
    assert asked == ["fake-model", "fake-model", "second", "second"]
    run = Run.objects.get(agent_id=agent["id"].removeprefix("agent-"))
    assert run.request["notices"] == [
        "The model fake/fake-model was not available, so fake/second was asked."
    ]
    step = Step.objects.get(run=run, status="success")
    assert (step.model, step.model_handle) == ("second", "fake/second")
    provider.enqueue("Again.")
    send(api, agent)
    assert provider.requests[-1].model == "fake-model", "the next turn begins with the chosen one"


def test_turn_fails_with_the_last_error_when_all_are_away(api: Api, provider: Gateway) -> None:
    agent = make_agent(api)
    provider.default = Reply(error=failure(), error_after=0)
    assert send(api, agent).status == 500
    assert len(provider.requests) == 6


def test_error_after_output_is_not_retried(api: Api, provider: Gateway) -> None:
    agent = make_agent(api)
    provider.enqueue(Reply(text="half of it", error=failure()))
    assert send(api, agent).status == 500
    assert len(provider.requests) == 1
