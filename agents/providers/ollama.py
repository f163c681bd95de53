"""Ollama: its models by `/api/tags` and `/api/show`; streaming is in `langchain_ollama_stream`.

Ollama cuts a prompt silently at `num_ctx` (4,096 by default), so the context window of each model
is asked for and sent with every call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.utils.module_loading import import_string

from agents.providers import errors, transport
from agents.providers.base import ChatRequest, Delta, EmbeddingModel, ModelInfo, join_url
from agents.providers.errors import Endpoint
from agents.providers.openai import positive_int
from souveraine.errors import ProviderError

STREAM = "agents.providers.langchain_ollama_stream.stream_chat"
SHOW_TOTAL_SECONDS = 3.0  # beside /api/tags it must fit into the registry's deadline
_PARALLEL_SHOWS = 8


@dataclass(frozen=True)
class ModelDetails:
    """What `/api/show` tells; `context_length` in tokens."""

    context_length: int | None
    capabilities: frozenset[str] | None
    is_chat: bool = True
    embedding_length: int | None = None


_Key = tuple[str, str]  # name and digest
UNKNOWN = ModelDetails(None, None)


class OllamaProvider:
    """One Ollama server. Details of a model are asked once per digest."""

    provider_type = "ollama"

    def __init__(
        self, endpoint: Endpoint, *, timeout_seconds: float, default_context_window: int
    ) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.timeout_seconds = timeout_seconds
        self.default_context_window = default_context_window
        self._details: dict[_Key, ModelDetails] = {}

    def list_models(self) -> list[ModelInfo]:
        """As ChatProvider says; embedding models are left out."""
        return [self._model(name, details) for name, details in self._listed() if details.is_chat]

    def list_embedding_models(self) -> list[EmbeddingModel]:
        """As EmbeddingProvider says."""
        return [
            EmbeddingModel(
                handle=f"{self.name}/{name}",
                name=name,
                provider_name=self.name,
                provider_type=self.provider_type,
                endpoint_type="ollama",
                endpoint=self.endpoint.shown_url,
                dimensions=details.embedding_length,
            )
            for name, details in self._listed()
            if not details.is_chat
        ]

    def embed(
        self, model: str, texts: Sequence[str], *, timeout_seconds: float
    ) -> list[list[float]]:
        """As EmbeddingProvider says; Ollama cuts what is too long for the model."""
        answer = transport.ask(
            self.endpoint,
            "POST",
            join_url(self.endpoint.url, "api/embed"),
            body={"model": model, "input": list(texts), "truncate": True},
            total_seconds=timeout_seconds,
        )
        with errors.understanding(self.endpoint):
            return list(answer["embeddings"])

    def _listed(self) -> list[tuple[str, ModelDetails]]:
        """Give every model with what is known of it."""
        answer = transport.ask(self.endpoint, "GET", join_url(self.endpoint.url, "api/tags"))
        entries = answer.get("models") if isinstance(answer, dict) else None
        with errors.understanding(self.endpoint):
            keys = [(str(e.get("model") or e["name"]), str(e.get("digest"))) for e in entries or []]
        unknown = [key for key in keys if key not in self._details]
        if unknown:
            self._learn(keys, unknown)
        return [(name, self._details.get((name, digest), UNKNOWN)) for name, digest in keys]

    def _learn(self, keys: list[_Key], unknown: list[_Key]) -> None:
        with ThreadPoolExecutor(min(_PARALLEL_SHOWS, len(unknown))) as pool:
            shown = list(pool.map(lambda key: self._show(key[0]), unknown))
        found = {key: details for key, details in zip(unknown, shown, strict=True) if details}
        # Replaced as a whole: other threads read it meanwhile, and deleted models go.
        self._details = {key: d for key, d in {**self._details, **found}.items() if key in keys}

    def _show(self, model: str) -> ModelDetails | None:
        try:
            url = join_url(self.endpoint.url, "api/show")
            answer = transport.ask(
                self.endpoint, "POST", url, body={"model": model}, total_seconds=SHOW_TOTAL_SECONDS
            )
        except ProviderError:
            return None  # listed without details, and asked again at the next listing
        return read_details(answer)

    def _model(self, name: str, details: ModelDetails) -> ModelInfo:
        return ModelInfo(
            handle=f"{self.name}/{name}",
            name=name,
            provider_name=self.name,
            provider_type=self.provider_type,
            endpoint_type="ollama",
            endpoint=self.endpoint.shown_url,
            context_window=details.context_length or self.default_context_window,
            display_name=name,
            capabilities=details.capabilities,
        )

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """As ChatProvider says; tools and thinking are left out for models that refuse them."""
        chat = import_string(STREAM)
        deltas: AsyncGenerator[Delta, None] = chat(self.endpoint, request, self.timeout_seconds)
        return deltas


def read_details(shown: Any) -> ModelDetails:
    """Read an answer of `/api/show`; what is missing stays None."""
    if not isinstance(shown, dict):
        return UNKNOWN
    info = shown.get("model_info")
    info = info if isinstance(info, dict) else {}
    lengths = (positive_int(v) for k, v in info.items() if k.endswith(".context_length"))
    sizes = (positive_int(v) for k, v in info.items() if k.endswith(".embedding_length"))
    told = shown.get("capabilities")
    if not isinstance(told, list):  # Ollama before 0.6
        return ModelDetails(next((n for n in lengths if n), None), None)
    return ModelDetails(
        next((n for n in lengths if n), None),
        frozenset(map(str, told)) & {"tools", "vision", "thinking"},
        is_chat="embedding" not in told,
        embedding_length=next((n for n in sizes if n), None),
    )
