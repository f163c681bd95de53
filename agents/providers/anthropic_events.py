"""The events of Anthropic's message stream → our deltas. Pure: no network."""

from __future__ import annotations

import json
from typing import Any

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

FINISHES = {  # others pass as they are: refusal, pause_turn, …
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class EventReader:
    """Reads the events of one call in order. `started` is true once any delta came out."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.started = False
        self._endpoint = endpoint
        self._usage: dict[str, Any] = {}
        self._finish: str | None = None
        self._is_done = False
        self._calls: dict[int, int] = {}  # the block's index → ours
        self._whole_inputs: dict[int, str] = {}  # given at a block's start, until a piece comes

    def read(self, event: dict[str, Any]) -> list[Delta]:
        """Give what one event adds. Raises ProviderError for an error event."""
        kind = event.get("type")
        deltas: list[Delta] = []
        if kind == "error":
            raise self._error(event.get("error"))
        if kind == "message_start":
            self._add_usage(event["message"].get("usage"))
        elif kind == "content_block_start":
            deltas = self._start(event["index"], event["content_block"])
        elif kind == "content_block_delta":
            deltas = self._piece(event["index"], event["delta"])
        elif kind == "content_block_stop":
            deltas = self._stop(event["index"])
        elif kind == "message_delta":
            self._finish = event["delta"].get("stop_reason") or self._finish
            self._add_usage(event.get("usage"))
        elif kind == "message_stop":
            self._is_done = True
        self.started = self.started or bool(deltas)
        return deltas

    def end(self) -> list[Delta]:
        """Give usage and finish. Raises ProviderError when the stream ended too early."""
        if not (self._is_done or self._finish):
            raise errors.cut(
                self._endpoint,
                "the stream ended before the answer was complete",
                started=self.started,
            )
        finish = FINISHES.get(self._finish, self._finish) if self._finish else None
        return [*self._totals(), FinishDelta(finish)]

    def _start(self, index: int, block: dict[str, Any]) -> list[Delta]:
        kind = block.get("type")
        if kind == "tool_use":
            position = self._calls[index] = len(self._calls)
            if block.get("input"):
                self._whole_inputs[index] = json.dumps(block["input"], ensure_ascii=False)
            return [ToolCallDelta(position, block.get("id"), block.get("name"))]
        return _said(block.get("text"), block.get("thinking"))

    def _piece(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        if index in self._calls:
            pieces = delta.get("partial_json") or ""
            if not pieces:
                return []
            self._whole_inputs.pop(index, None)
            return [ToolCallDelta(self._calls[index], arguments=pieces)]
        return _said(delta.get("text"), delta.get("thinking"))

    def _stop(self, index: int) -> list[Delta]:
        """Give a call's arguments that came whole, as some gateways send them."""
        whole = self._whole_inputs.pop(index, "")
        return [ToolCallDelta(self._calls[index], arguments=whole)] if whole else []

    def _add_usage(self, usage: object) -> None:
        """Keep the latest numbers: they are totals, and later events may leave some out."""
        if isinstance(usage, dict):
            self._usage.update({k: v for k, v in usage.items() if v is not None})

    def _totals(self) -> list[Delta]:
        usage = self._usage
        if "input_tokens" not in usage and "output_tokens" not in usage:
            return []
        cached = usage.get("cache_read_input_tokens")
        # Anthropic counts cached tokens beside the others; the prompt is all of them.
        prompt = (
            (count_of(usage.get("input_tokens")) or 0)
            + (count_of(cached) or 0)
            + (count_of(usage.get("cache_creation_input_tokens")) or 0)
        )
        completion = count_of(usage.get("output_tokens")) or 0
        details = usage.get("output_tokens_details") or {}
        return [
            UsageDelta(
                prompt,
                completion,
                prompt + completion,
                cached_input_tokens=cached,
                reasoning_tokens=details.get("thinking_tokens"),
            )
        ]

    def _error(self, error: object) -> Exception:
        error = error if isinstance(error, dict) else {"message": str(error)}
        message = f"{error.get('type') or 'error'}: {error.get('message') or json.dumps(error)}"
        return errors.from_error_frame(
            self._endpoint, message, STATUSES.get(str(error.get("type")))
        )


def _said(text: object, thinking: object) -> list[Delta]:
    if isinstance(thinking, str) and thinking:
        return [ReasoningDelta(thinking)]
    return [TextDelta(text)] if isinstance(text, str) and text else []
