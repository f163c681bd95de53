"""A provider without network for tests: it plays queued replies and records what it was asked.

Put it in place with `agents.providers.registry.override_providers({"fake": FakeProvider()})`; its
models are then `fake/fake-model` and so on. Deterministic, and usable from several threads and
event loops.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.providers.base import (
    ChatRequest,
    Delta,
    EmbeddingModel,
    FinishDelta,
    ModelInfo,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)

EMBEDDING_DIMENSIONS = 64


@dataclass(frozen=True)
class Call:
    """A tool call of a reply. `arguments` is an object, or text to send as it stands (also
    malformed).
    """

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """One answer of the model, sent in the order reasoning, text, tool calls, usage, finish.

    `text` and `reasoning` go out word by word; `deltas` replaces all of it, word for word. `error`
    is raised at the end, or after `error_after` deltas; `hangs` waits there for ever instead.
    `delay_seconds` is slept before each delta, `before` is called when the reply starts.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: Sequence[Call] = ()
    deltas: Sequence[Delta] | None = None
    finish: str | None = None
    prompt_tokens: int | None = None
    error: BaseException | None = None
    error_after: int | None = None
    hangs: bool = False
    delay_seconds: float = 0.0
    before: Callable[[ChatRequest], None] | None = None


@dataclass
class CallRecord:
    """What became of one call: `sent` deltas so far, and how the stream ended."""

    request: ChatRequest
    reply: Reply
    sent: int = 0
    is_finished: bool = False
    is_closed_early: bool = False


class FakeProvider:
    """Implements ChatProvider. An empty queue answers with `default`, which may be callable too."""

    def __init__(
        self,
        name: str = "fake",
        *,
        models: Sequence[str] = ("fake-model",),
        context_window: int = 32768,
        capabilities: frozenset[str] | None = frozenset({"tools", "vision", "thinking"}),
        provider_type: str = "openai",
        default: Reply | Callable[[ChatRequest], Reply] | None = None,
        embedding_models: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.provider_type = provider_type
        self.models = list(models)
        self.context_window = context_window
        self.capabilities = capabilities
        self.default: Reply | Callable[[ChatRequest], Reply] = default or Reply(text="Hello there.")
        self.listing_error: Exception | None = None
        self.embedding_models = list(embedding_models)
        self.embedding_error: Exception | None = None
        self.embedded: list[tuple[str, str]] = []
        self.calls: list[CallRecord] = []
        self._queue: deque[Reply | Callable[[ChatRequest], Reply]] = deque()
        self._lock = threading.Lock()

    def enqueue(self, *replies: Reply | Callable[[ChatRequest], Reply] | str) -> FakeProvider:
        """Add replies, played one per call in order. A callable makes one out of the request."""
        with self._lock:
            self._queue.extend(Reply(text=r) if isinstance(r, str) else r for r in replies)
        return self

    def clear(self) -> None:
        """Drop the replies that nobody has asked for."""
        with self._lock:
            self._queue.clear()

    @property
    def requests(self) -> list[ChatRequest]:
        """All requests so far, oldest first."""
        return [call.request for call in self.calls]

    @property
    def pending(self) -> int:
        """How many queued replies are left; 0 when a test has used its whole script."""
        return len(self._queue)

    def list_models(self) -> list[ModelInfo]:
        """List `models`, or raise `listing_error`."""
        if self.listing_error is not None:
            raise self.listing_error
        return [
            ModelInfo(
                handle=f"{self.name}/{model}",
                name=model,
                provider_name=self.name,
                provider_type=self.provider_type,
                endpoint_type="openai",
                endpoint="http://fake.invalid/v1",
                context_window=self.context_window,
                display_name=model,
                capabilities=self.capabilities,
            )
            for model in self.models
        ]

    def list_embedding_models(self) -> list[EmbeddingModel]:
        """List `embedding_models`, or raise `listing_error`."""
        if self.listing_error is not None:
            raise self.listing_error
        return [
            EmbeddingModel(
                handle=f"{self.name}/{model}",
                name=model,
                provider_name=self.name,
                provider_type=self.provider_type,
                endpoint_type="openai",
                endpoint="http://fake.invalid/v1",
                dimensions=EMBEDDING_DIMENSIONS,
            )
            for model in self.embedding_models
        ]

    def embed(
        self, model: str, texts: Sequence[str], *, timeout_seconds: float
    ) -> list[list[float]]:
        """Give vectors that are near when texts share beginnings of words, or raise `embedding_error`.

        `embedded` notes (model, text). Another model gives other vectors.
        """
        if self.embedding_error is not None:
            raise self.embedding_error
        self.embedded += [(model, text) for text in texts]
        return [_embedding(model, text) for text in texts]

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Play the next reply. The reply is taken when iteration starts."""
        record = self._take(request)
        reply = record.reply
        if reply.before is not None:
            reply.before(request)
        try:
            deltas = _script(request, reply)
            stop = len(deltas) if reply.error_after is None else reply.error_after
            for delta in deltas[:stop]:
                # Also with 0: every delta gives other tasks a turn, as a socket would.
                await asyncio.sleep(reply.delay_seconds)
                record.sent += 1
                yield delta
            if reply.hangs:
                await asyncio.Event().wait()
            if reply.error is not None:
                raise reply.error
            record.is_finished = True
        except (GeneratorExit, asyncio.CancelledError):
            record.is_closed_early = True
            raise

    def _take(self, request: ChatRequest) -> CallRecord:
        with self._lock:
            queued = self._queue.popleft() if self._queue else self.default
            reply = queued if isinstance(queued, Reply) else queued(request)
            record = CallRecord(request, reply)
            self.calls.append(record)
            number = len(self.calls)
        if reply.tool_calls and any(call.id is None for call in reply.tool_calls):
            record.reply = _with_ids(reply, number)
        return record


def _embedding(model: str, text: str) -> list[float]:
    vector = [0.01] * EMBEDDING_DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        digest = hashlib.sha256(f"{model} {word[:4]}".encode()).digest()
        vector[digest[0] % EMBEDDING_DIMENSIONS] += 1.0 if digest[1] % 2 else -1.0
    return vector


def _with_ids(reply: Reply, number: int) -> Reply:
    calls = tuple(
        Call(call.name, call.arguments, call.id or f"call_fake_{number}_{position}")
        for position, call in enumerate(reply.tool_calls)
    )
    return Reply(**{**reply.__dict__, "tool_calls": calls})


def _words(text: str) -> list[str]:
    parts = text.split(" ")
    return [word if i == 0 else f" {word}" for i, word in enumerate(parts)] if text else []


def _script(request: ChatRequest, reply: Reply) -> list[Delta]:
    if reply.deltas is not None:
        return list(reply.deltas)
    script: list[Delta] = [ReasoningDelta(word) for word in _words(reply.reasoning)]
    script += [TextDelta(word) for word in _words(reply.text)]
    for index, call in enumerate(reply.tool_calls):
        middle = len(call.text) // 2  # in two pieces, so that nobody relies on whole ones
        script.append(ToolCallDelta(index, call.id, call.name, call.text[:middle]))
        script.append(ToolCallDelta(index, arguments=call.text[middle:]))
    if reply.error is not None or reply.hangs:
        return script
    prompt = reply.prompt_tokens
    if prompt is None:
        prompt = sum(len(str(message.content)) for message in request.messages) // 4
    completion = len(script)
    finish = reply.finish or ("tool_calls" if reply.tool_calls else "stop")
    return [*script, UsageDelta(prompt, completion, prompt + completion), FinishDelta(finish)]
