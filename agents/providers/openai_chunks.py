"""The dialects of `chat.completion.chunk` → our deltas. Pure: no network, no LangChain."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from agents.providers import errors
from agents.providers.base import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    count_of,
)
from agents.providers.errors import Endpoint


class ChunkReader:
    """Reads the chunks of one call in order. `started` is true once any delta came out."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.started = False
        self._endpoint = endpoint
        self._usage: dict[str, Any] | None = None
        self._finish: str | None = None
        self._is_done = False
        self._indexes: dict[object, int] = {}  # the server's index → ours
        self._ids: list[str] = []  # by our index

    def read(self, chunk: dict[str, Any]) -> list[Delta]:
        """Give what one chunk adds. Raises ProviderError for an error frame."""
        if chunk.get("error"):
            raise self._error(chunk["error"])
        self._is_done = self._is_done or bool(chunk.get("done"))
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return []
        choice = choices[0]
        self._finish = choice.get("finish_reason") or self._finish
        # A server that ignores `stream` answers with one whole `message`.
        delta = choice.get("delta") or choice.get("message") or {}
        deltas = [*_texts(delta), *self._calls(delta.get("tool_calls"))]
        self.started = self.started or bool(deltas)
        return deltas

    def end(self) -> list[Delta]:
        """Give usage and finish. Raises ProviderError when the stream ended too early."""
        if not (self._finish or self._is_done or self._usage):
            raise errors.cut(
                self._endpoint,
                "the stream ended before the answer was complete",
                started=self.started,
            )
        usage = _usage(self._usage)
        return [*([usage] if usage else []), FinishDelta(self._finish)]

    def _error(self, error: object) -> Exception:
        if not isinstance(error, dict):
            return errors.from_error_frame(self._endpoint, str(error))
        nested = error.get("error")
        inner = nested if isinstance(nested, dict) else error
        message = inner.get("message") or json.dumps(error)
        return errors.from_error_frame(self._endpoint, str(message), inner.get("code"))

    def _calls(self, raw: object) -> list[Delta]:
        calls = [c for c in raw if isinstance(c, dict)] if isinstance(raw, list) else []
        return [self._call(call, position) for position, call in enumerate(calls)]

    def _call(self, call: dict[str, Any], position: int) -> ToolCallDelta:
        function = call.get("function") or {}
        name, given_id = function.get("name") or None, call.get("id") or None
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        key = call.get("index")
        has_index = key is not None
        index = self._indexes.get(key if has_index else f"position {position}")
        is_repeated = index is not None and given_id == self._ids[index]
        # Some servers number all calls 0; Gemini's gateway sends no index, and each call whole.
        starts = name is not None and not is_repeated and (given_id is not None or not has_index)
        if index is not None and not starts:
            return ToolCallDelta(index, arguments=arguments)
        index = len(self._ids)
        self._indexes[key if has_index else f"position {position}"] = index
        self._ids.append(given_id or f"call_{uuid4().hex}")
        return ToolCallDelta(index, self._ids[index], name, arguments)


def _texts(delta: dict[str, Any]) -> list[Delta]:
    found: list[Delta] = []
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        found.append(ReasoningDelta(reasoning))
    content = delta.get("content") or delta.get("refusal")
    if isinstance(content, str) and content:
        found.append(TextDelta(content))
    if isinstance(content, list):
        found.extend(_parts(content))
    return found


def _parts(parts: list[Any]) -> list[Delta]:
    """Read content given as parts (Mistral): `text`, and `thinking` which holds parts again."""
    found: list[Delta] = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            text = (
                inner
                if isinstance(inner, str)
                else "".join(str(p.get("text", "")) for p in inner or [] if isinstance(p, dict))
            )
            found.append(ReasoningDelta(text))
        elif part.get("text"):
            found.append(TextDelta(str(part["text"])))
    return found


def _usage(usage: dict[str, Any] | None) -> UsageDelta | None:
    if not usage:
        return None
    prompt, completion = (
        count_of(usage.get(f"{kind}_tokens")) or 0 for kind in ("prompt", "completion")
    )
    details = [usage.get(f"{kind}_tokens_details") for kind in ("prompt", "completion")]
    cached, reasoning = (
        count_of(given.get(name)) if isinstance(given, dict) else None
        for given, name in zip(details, ("cached_tokens", "reasoning_tokens"), strict=True)
    )
    return UsageDelta(
        prompt,
        completion,
        count_of(usage.get("total_tokens")) or prompt + completion,
        cached_input_tokens=cached,
        reasoning_tokens=reasoning,
    )
