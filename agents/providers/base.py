"""The types between the turn engine and every model provider: request, deltas, model, provider.

Plain dataclasses, so that the web process, the worker and test doubles share them at no cost.
Retries, `<think>` tags in text and token counting are the turn engine's business, not a provider's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

MAX_COUNT = 2**53
CAPABILITIES = frozenset({"tools", "vision", "thinking"})


@dataclass(frozen=True)
class ModelInfo:
    """One model that a provider really has.

    `context_window` is in tokens and is what a request may use, not what the weights were trained
    for. `capabilities` is a subset of CAPABILITIES; None means that the provider does not tell.
    """

    handle: str
    name: str
    provider_name: str
    provider_type: str
    endpoint_type: str
    endpoint: str
    context_window: int
    display_name: str
    max_output_tokens: int = 16384
    capabilities: frozenset[str] | None = None
    is_demonstration: bool = False
    owner_id: uuid.UUID | None = None  # of a provider that somebody added: nobody else may use it

    def can(self, capability: str) -> bool:
        """Say whether the model has the capability; an untold one is taken as present."""
        return self.capabilities is None or capability in self.capabilities


@dataclass(frozen=True)
class ToolCallRequest:
    """A call the model asked for earlier; `arguments` is the JSON text as it was received."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ChatMessage:
    """One message of the prompt. `content` is text or Letta's parts (`text`, `image` with a
    `source`).
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    tool_calls: tuple[ToolCallRequest, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False


@dataclass(frozen=True)
class ChatRequest:
    """What one model call needs. `model` is the provider's own name, as `registry.resolve` gives
    it.

    `tools` are `{"name", "description", "parameters"}` with a JSON schema in `parameters`;
    `context_window` and `max_tokens` are in tokens; `response_format` is OpenAI's object.
    """

    model: str
    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = field(default_factory=list)
    context_window: int = 32768
    temperature: float | None = None
    max_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TextDelta:
    """Some more of the answer."""

    text: str


@dataclass(frozen=True)
class ReasoningDelta:
    """Some more of the model's reasoning, from a field of its own (never from tags in the text)."""

    text: str


@dataclass(frozen=True)
class ToolCallDelta:
    """Some more of tool call `index` (0, 1, …); id and name come once, arguments in pieces."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True)
class UsageDelta:
    """Tokens of the whole call, sent once before the end; None means that the provider does not
    tell.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True)
class FinishDelta:
    """The last delta of a stream that ended well: `stop`, `length`, `tool_calls`, … or None."""

    reason: str | None


Delta = TextDelta | ReasoningDelta | ToolCallDelta | UsageDelta | FinishDelta


class ChatProvider(Protocol):
    """Somebody who has models. Implementations are safe to use from several threads and tasks."""

    @property
    def name(self) -> str:
        """The part of a handle before its first slash."""

    @property
    def provider_type(self) -> str:
        """Letta's provider type: `openai`, `ollama`, …"""

    def list_models(self) -> list[ModelInfo]:
        """List the models that are there now; blocks for a few seconds at most.

        Raises ProviderError when the provider cannot be asked, Unavailable when it cannot be used.
        """

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Call the model once; ends with UsageDelta (if known) and FinishDelta.

        Closing or cancelling the generator closes the connection at once, so use `aclosing`. Raises
        ProviderError (`is_transient` tells whether a retry can help), also in mid-stream.
        """


@dataclass(frozen=True)
class EmbeddingModel:
    """One embedding model that a provider really has; `dimensions` None: the provider does not tell."""

    handle: str
    name: str
    provider_name: str
    provider_type: str
    endpoint_type: str
    endpoint: str
    dimensions: int | None = None


@runtime_checkable
class EmbeddingProvider(Protocol):
    """A provider that has embedding models too."""

    def list_embedding_models(self) -> list[EmbeddingModel]:
        """List them; blocks for a few seconds at most. Raises as `ChatProvider.list_models`."""

    def embed(
        self, model: str, texts: Sequence[str], *, timeout_seconds: float
    ) -> list[list[float]]:
        """Give one vector for each text, in order; blocks. Raises ProviderError."""


def count_of(value: Any) -> int | None:
    """Give a token count as told, None for what is none: an odd count must not cost the answer."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT
    return value if is_count else None


def join_url(base: str, path: str) -> str:
    """Join a base URL and a path with exactly one slash."""
    return f"{base.rstrip('/')}/{path.lstrip('/')}"


def arguments_object(arguments: str) -> dict[str, Any]:
    """Give a call's arguments as an object, whatever the model wrote.

    Servers that parse the history refuse malformed arguments for ever; kept as a value they pass.
    """
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {"malformed_arguments": arguments}
    return value if isinstance(value, dict) else {"malformed_arguments": arguments}
