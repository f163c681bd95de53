"""What model lists tell, and what a turn makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from agents.providers import registry
from agents.providers.base import ChatMessage, ModelInfo
from agents.providers.capabilities import fit, refuse_images, without_images
from agents.providers.model_hints import told_capabilities
from souveraine.errors import ProviderError, ValidationFailed
from souveraine.testing.fake_provider import FakeProvider
from tests.conftest import Api, make_agent

IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
TEXT = {"type": "text", "text": "see"}


def model(*capabilities: str, window: int = 8000, known: bool = True) -> ModelInfo:
    told = frozenset(capabilities) if known else None
    return ModelInfo(
        "p/m", "m", "p", "openai", "openai", "http://x", window, "m", capabilities=told
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, None),
        ({"capabilities": ["completion"]}, None),
        ({"capabilities": ["completion", "multimodal"]}, {"tools", "vision"}),
        ({"capabilities": ["tool_use"]}, {"tools", "vision"}),
        ({"type": "vlm"}, {"tools", "vision"}),
        ({"type": "llm", "max_context_length": 4096}, {"tools"}),
        ({"type": "llm"}, None),
        ({"supported_parameters": ["temperature"]}, {"vision"}),
        ({"supported_parameters": ["tools", "reasoning"]}, {"tools", "vision", "thinking"}),
        ({"architecture": {"input_modalities": ["text"]}}, {"tools"}),
        ({"architecture": {"modality": "text+image->text"}}, {"tools", "vision"}),
        ({"architecture": {"modality": "text->text+image"}}, {"tools"}),
        (
            {"supported_parameters": [], "architecture": {"input_modalities": ["text"]}},
            set(),
        ),
        ({"capabilities": {"function_calling": False, "vision": True}}, {"vision"}),
        ({"capabilities": {"function_calling": True, "vision": False}}, {"tools"}),
        (
            {
                "capabilities": {
                    "image_input": {"supported": True},
                    "thinking": {"supported": True, "types": {}},
                    "batch": {"supported": False},
                }
            },
            {"tools", "vision", "thinking"},
        ),
        ({"capabilities": "tools", "architecture": "llama"}, None),
    ],
)
def test_dialects_of_model_lists(entry: dict[str, Any], expected: set[str] | None) -> None:
    assert told_capabilities(entry) == expected


def test_fit_without_conflict_has_no_notice() -> None:
    found = fit(model("tools"), handle="p/m", context_window=4000, has_tools=True)
    assert (found.context_window, found.uses_tools, found.notices) == (4000, True, ())
    unknown = fit(None, handle="p/m", context_window=4000, has_tools=True)
    assert (unknown.context_window, unknown.uses_tools, unknown.notices) == (4000, True, ())
    assert fit(model(known=False), handle="p/m", context_window=1, has_tools=True).uses_tools
    other = fit(model(), handle="p/m", context_window=9000, has_tools=False, is_agents_own=False)
    assert (other.context_window, other.notices) == (8000, ())


def test_fit_tells_missing_tools_and_a_smaller_window() -> None:
    found = fit(model("vision"), handle="p/m", context_window=9000, has_tools=True)
    assert (found.context_window, found.uses_tools) == (8000, False)
    assert "p/m cannot call tools" in found.notices[0]
    assert "9000" in found.notices[1]
    assert "8000" in found.notices[1]
    assert fit(model(), handle="p/m", context_window=8000, has_tools=False).notices == ()


def test_image_is_refused_only_when_the_model_is_known_to_be_blind() -> None:
    blind = FakeProvider("blind", capabilities=frozenset({"tools"}))
    untold = FakeProvider("untold", capabilities=None)
    down = FakeProvider("down")
    down.listing_error = ProviderError("llm_error", "away")
    known = {p.name: p for p in (blind, untold, down)}
    with registry.override_providers(known):
        with pytest.raises(ValidationFailed, match="blind/fake-model cannot see images"):
            refuse_images("blind/fake-model", [None, [TEXT, IMAGE]])
        refuse_images("blind/fake-model", [None, [TEXT]])
        for handle in ("untold/fake-model", "down/fake-model", "nobody/x"):
            refuse_images(handle, [[IMAGE]])


def test_no_image_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "get_model", lambda handle: pytest.fail("asked"))
    refuse_images("p/m", [None, [TEXT]])


def test_images_become_text_for_a_blind_model() -> None:
    messages = [ChatMessage("user", "hi"), ChatMessage("user", [TEXT, IMAGE], name="bob")]
    plain, mixed = without_images(messages)
    assert plain is messages[0]
    assert mixed.content[0] == TEXT
    assert mixed.content[1] == {
        "type": "text",
        "text": "[an image that the present model cannot see]",
    }
    assert mixed.name == "bob"


def test_conversation_with_images_goes_on_with_a_blind_model(api: Api, provider: Any) -> None:
    agent = make_agent(api)
    send = f"/v1/agents/{agent['id']}/messages"
    api.post(send, {"messages": [{"role": "user", "content": [TEXT, IMAGE]}]})
    assert "iVBORw0KGgo=" in str(provider.requests[-1].messages)
    provider.capabilities = frozenset()
    registry.list_models(refresh=True)
    answer = api.post(send, {"messages": [{"role": "user", "content": "And now?"}]})
    assert answer.status == 200
    assert "iVBORw0KGgo=" not in str(provider.requests[-1].messages)
    assert provider.requests[-1].tools == []


def run_of(api: Api, agent: dict[str, Any]) -> dict[str, Any]:
    runs: list[dict[str, Any]] = api.get(f"/v1/runs/?agent_id={agent['id']}").json()
    return runs[0]


def test_turn_without_tools_says_so_in_the_runs_metadata(api: Api, provider: Any) -> None:
    provider.capabilities, provider.context_window = frozenset(), 5000
    agent = make_agent(api, context_window_limit=9000)
    assert agent["tools"], "the agent keeps its tools for another model"
    body = {"messages": [{"role": "user", "content": "hi"}]}
    answer = api.post(f"/v1/agents/{agent['id']}/messages", body)
    assert answer.status == 200
    assert (provider.requests[-1].tools, provider.requests[-1].context_window) == ([], 5000)
    tools, window = run_of(api, agent)["metadata"]["notices"]
    assert "fake/fake-model cannot call tools" in tools
    assert "9000" in window


def test_turn_without_conflict_has_no_notices(api: Api, provider: Any) -> None:
    agent = make_agent(api)
    body = {"messages": [{"role": "user", "content": "hi"}]}
    api.post(f"/v1/agents/{agent['id']}/messages", body)
    assert "notices" not in run_of(api, agent)["metadata"]


def test_image_for_a_blind_model_is_422_and_nothing_is_stored(api: Api, provider: Any) -> None:
    provider.capabilities = frozenset({"tools"})
    agent = make_agent(api)
    path = f"/v1/agents/{agent['id']}/messages"
    before = api.get(path).json()
    answer = api.post(path, {"messages": [{"role": "user", "content": [TEXT, IMAGE]}]})
    assert answer.status == 422
    assert "fake/fake-model cannot see images" in answer.json()["detail"]
    assert api.get(path).json() == before
    assert api.get(f"/v1/runs/?agent_id={agent['id']}").json() == []
    assert provider.requests == []
