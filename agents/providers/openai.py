"""Every server that speaks OpenAI's protocol: OpenAI, vLLM, llama.cpp, LM Studio, our own engine, and
Bifrost (`bifrost`).

Lists models here; streaming is in `langchain_openai_stream`, loaded at the first call.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from django.utils.module_loading import import_string

from agents.providers import errors, transport
from agents.providers.base import ChatRequest, Delta, EmbeddingModel, ModelInfo, join_url
from agents.providers.errors import Endpoint
from agents.providers.model_hints import told_capabilities
from souveraine.errors import ProviderError

OPENAI_URL = "https://api.openai.com/v1"
STREAM = "agents.providers.langchain_openai_stream.stream_chat"

_NOT_CHAT = re.compile(
    r"embed|whisper|rerank|moderation|transcribe|dall-e|(^|[-/_])(tts|bge|e5|gte|minilm)([-/_.]|$)",
    re.IGNORECASE,
)
_EMBEDDING = re.compile(r"embed|(^|[-/_])(bge|e5|gte|minilm)([-/_.]|$)", re.IGNORECASE)
_RANKING = re.compile(r"rerank", re.IGNORECASE)
_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}  # OpenAI does not tell them
_CONTEXT_KEYS = (
    "context_length",
    "max_model_len",
    "context_window",
    "max_context_length",
    "max_input_tokens",
)


class OpenAIProvider:
    """One OpenAI-compatible endpoint; `default_context_window` (tokens) for when it tells none."""

    provider_type = "openai"

    def __init__(
        self, endpoint: Endpoint, *, timeout_seconds: float, default_context_window: int
    ) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.timeout_seconds = timeout_seconds
        self.default_context_window = default_context_window

    def list_models(self) -> list[ModelInfo]:
        """As ChatProvider says; embedding, speech and ranking models are left out where that can be
        told.
        """
        entries = self._entries()
        with errors.understanding(self.endpoint):
            chat = [e for e in entries if e.get("id") and _is_chat(e)]
            runtime = self._runtime_context(chat)
            return [self._model(entry, runtime) for entry in chat]

    def list_embedding_models(self) -> list[EmbeddingModel]:
        """As EmbeddingProvider says; which ones embed is told by their type or name."""
        entries = self._entries()
        with errors.understanding(self.endpoint):
            return [
                EmbeddingModel(
                    handle=f"{self.name}/{entry['id']}",
                    name=str(entry["id"]),
                    provider_name=self.name,
                    provider_type=self.provider_type,
                    endpoint_type="openai",
                    endpoint=self.endpoint.shown_url,
                    dimensions=positive_int((entry.get("meta") or {}).get("n_embd"))
                    or _DIMENSIONS.get(str(entry["id"]).rpartition("/")[2]),
                )
                for entry in entries
                if entry.get("id") and _is_embedding(entry)
            ]

    def embed(
        self, model: str, texts: Sequence[str], *, timeout_seconds: float
    ) -> list[list[float]]:
        """As EmbeddingProvider says."""
        answer = transport.ask(
            self.endpoint,
            "POST",
            join_url(self.endpoint.url, "embeddings"),
            body={"model": model, "input": list(texts), "encoding_format": "float"},
            total_seconds=timeout_seconds,
        )
        with errors.understanding(self.endpoint):
            found = sorted(answer["data"], key=lambda entry: entry.get("index", 0))
            return [entry["embedding"] for entry in found]

    def _entries(self) -> list[dict[str, Any]]:
        answer = transport.ask(self.endpoint, "GET", join_url(self.endpoint.url, "models"))
        entries = answer.get("data") if isinstance(answer, dict) else answer
        return entries or []

    def _model(self, entry: dict[str, Any], runtime: int | None) -> ModelInfo:
        name = str(entry["id"])
        return ModelInfo(
            handle=f"{self.name}/{name}",
            name=name,
            provider_name=self.name,
            provider_type=self.provider_type,
            endpoint_type="openai",
            endpoint=self.endpoint.shown_url,
            context_window=runtime or told_context(entry) or self.default_context_window,
            display_name=str(entry.get("name") or name),
            capabilities=told_capabilities(entry),
        )

    def _runtime_context(self, entries: list[dict[str, Any]]) -> int | None:
        """Ask llama.cpp for the window it really runs with; only it has `/props` beside `/v1`."""
        is_llamacpp = len(entries) == 1 and entries[0].get("owned_by") == "llamacpp"
        if not is_llamacpp or (entries[0].get("meta") or {}).get("n_ctx"):
            return None
        try:
            root = self.endpoint.url.rstrip("/").removesuffix("/v1")
            props = transport.ask(self.endpoint, "GET", join_url(root, "props"), total_seconds=2)
        except ProviderError:
            return None  # older servers and gateways in front of one have no /props
        settings = props.get("default_generation_settings") if isinstance(props, dict) else None
        return positive_int((settings or {}).get("n_ctx"))

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """As ChatProvider says."""
        chat = import_string(STREAM)
        deltas: AsyncGenerator[Delta, None] = chat(self.endpoint, request, self.timeout_seconds)
        return deltas


def positive_int(value: object) -> int | None:
    """Give a positive integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def told_context(entry: dict[str, Any]) -> int | None:
    """Give the context window in tokens that a /v1/models entry tells; a runtime limit wins over
    training.
    """
    meta = entry.get("meta") or {}
    runtime = positive_int(meta.get("n_ctx")) or positive_int(entry.get("loaded_context_length"))
    told = (positive_int(entry.get(key)) for key in _CONTEXT_KEYS)
    return (
        runtime
        or next((value for value in told if value), None)
        or positive_int(meta.get("n_ctx_train"))
    )


def _is_embedding(entry: dict[str, Any]) -> bool:
    kind = entry.get("type")
    if isinstance(kind, str) and "embed" in kind:
        return True
    name = str(entry["id"])
    return bool(_EMBEDDING.search(name)) and not _RANKING.search(name)


def _is_chat(entry: dict[str, Any]) -> bool:
    kind = entry.get("type")
    if isinstance(kind, str) and "embed" in kind:
        return False
    return not _NOT_CHAT.search(str(entry["id"]))
