"""Embedding models: what providers list, what goes over the wire, and what comes back odd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents.providers import embeddings
from agents.providers.errors import Endpoint
from agents.providers.ollama import OllamaProvider
from agents.providers.openai import OpenAIProvider
from agents.providers.registry import override_providers
from souveraine.errors import InvalidArgument, NotFound, ProviderError, Unavailable
from tests.providers.wire import WireServer, as_json

LISTED = {
    "data": [
        {"id": "chatty"},
        {"id": "nomic-embed-text", "meta": {"n_embd": 768}},
        {"id": "text-embedding-3-small"},
        {"id": "odd-name", "type": "embeddings"},
        {"id": "bge-reranker-base"},
    ]
}


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer() as running:
        yield running


@pytest.fixture
def openai(server: WireServer) -> Iterator[OpenAIProvider]:
    endpoint = Endpoint("openai", "OpenAI", f"{server.url}/v1", "OPENAI_BASE_URL", api_key="secret")
    provider = OpenAIProvider(endpoint, timeout_seconds=5, default_context_window=8192)
    with override_providers({"openai": provider}):
        yield provider


@pytest.fixture
def ollama(server: WireServer) -> Iterator[OllamaProvider]:
    endpoint = Endpoint("ollama", "Ollama", server.url, "OLLAMA_BASE_URL")
    provider = OllamaProvider(endpoint, timeout_seconds=5, default_context_window=8192)
    with override_providers({"ollama": provider}):
        yield provider


def answers(server: WireServer, *vectors: Any, path: str = "/v1/embeddings") -> None:
    data = [{"index": i, "embedding": v} for i, v in enumerate(vectors)]
    server.on(path, as_json({"data": data[::-1]}))


def test_openai_lists_those_that_embed_with_their_size(
    server: WireServer, openai: OpenAIProvider
) -> None:
    server.on("/v1/models", as_json(LISTED))
    found = {m.handle: m.dimensions for m in embeddings.list_embedding_models()}
    assert found == {
        "openai/nomic-embed-text": 768,
        "openai/text-embedding-3-small": 1536,
        "openai/odd-name": None,
    }


def test_openai_embeds_in_order_and_vectors_have_unit_length(
    server: WireServer, openai: OpenAIProvider
) -> None:
    answers(server, [3.0, 4.0], [0.0, -2.0])
    first, second = embeddings.embed("openai/nomic-embed-text", ["one", "x" * 9000])
    assert embeddings.unpacked(first) == pytest.approx([0.6, 0.8])
    assert embeddings.unpacked(second) == pytest.approx([0.0, -1.0])
    [request] = server.requests
    assert request.body["model"] == "nomic-embed-text"
    assert [len(text) for text in request.body["input"]] == [3, embeddings.EMBEDDED_CHARS]
    assert request.headers["authorization"] == "Bearer secret"


def test_ollama_lists_and_embeds(server: WireServer, ollama: OllamaProvider) -> None:
    server.on("/api/tags", as_json({"models": [{"name": "minilm:latest", "digest": "d"}]}))
    shown = {"capabilities": ["embedding"], "model_info": {"bert.embedding_length": 384}}
    server.on("/api/show", as_json(shown))
    server.on("/api/embed", as_json({"embeddings": [[1, 0]]}))
    model = embeddings.get_embedding_model("ollama/minilm")
    assert (model.handle, model.dimensions) == ("ollama/minilm:latest", 384)
    [vector] = embeddings.embed(model.handle, ["x"])
    assert embeddings.unpacked(vector) == [1.0, 0.0]


@pytest.mark.parametrize(
    "odd",
    [
        {"data": []},
        {"data": [{"embedding": []}]},
        {"data": [{"embedding": [0, 0]}]},
        {"data": [{"embedding": ["a"]}]},
        {"data": [{"embedding": None}]},
        {"data": "x"},
        {},
        [],
    ],
)
def test_an_odd_answer_is_a_providers_error(
    server: WireServer, openai: OpenAIProvider, odd: Any
) -> None:
    server.on("/v1/embeddings", as_json(odd))
    with pytest.raises(ProviderError):
        embeddings.embed("openai/nomic-embed-text", ["x"])


def test_a_model_that_is_not_there_and_a_provider_that_is_away_are_told_apart(
    server: WireServer, openai: OpenAIProvider
) -> None:
    server.on("/v1/models", as_json({"error": "down"}, 500))
    with pytest.raises(Unavailable, match="openai cannot be listed"):
        embeddings.get_embedding_model("openai/nomic-embed-text")
    with pytest.raises(InvalidArgument):
        embeddings.get_embedding_model("nomic-embed-text")


def test_a_missing_model_is_not_found(server: WireServer, openai: OpenAIProvider) -> None:
    server.on("/v1/models", as_json(LISTED))
    with pytest.raises(NotFound, match="nomic-embed-text"):
        embeddings.get_embedding_model("openai/nope")
