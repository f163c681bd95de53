"""OpenAI's chat completions out of our frames: chunks of a stream, and the whole answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]
FINISH = {"max_tokens_exceeded": "length"}
# An OpenAI client has no other place where it could show why there is no answer.
WAITING = (
    "[The call of {names} waits for an approval. Decide it with a Letta client; "
    "until then other messages are refused.]"
)


def usage_state(usage: JSON) -> JSON:
    """Return CompletionUsage."""
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    return {
        "completion_tokens": completion,
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
    }


def text_of(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or () if isinstance(part, dict))


@dataclass
class Completion:
    """One answer, built frame by frame. Messages of one turn are set apart by an empty line."""

    id: str
    model: str
    includes_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    message_id: str = ""
    is_begun: bool = False
    finish_reason: str = "stop"
    usage: JSON = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)  # call id: tool

    def deltas(self, frame: JSON) -> list[JSON]:
        """Take one frame and return what it adds to the answer."""
        kind = frame.get("message_type")
        if kind == "stop_reason":
            self.finish_reason = FINISH.get(frame["stop_reason"], "stop")
            if frame["stop_reason"] == "requires_approval":
                return [{"content": self._what_waits()}]
        elif kind == "approval_request_message":
            self._note_calls(frame)
        elif kind == "usage_statistics":
            self.usage = usage_state(frame)
        elif kind == "reasoning_message":
            return [{"reasoning_content": frame.get("reasoning") or ""}]
        elif kind == "assistant_message":
            return [{"content": self._separator(frame) + text_of(frame.get("content"))}]
        return []

    def _note_calls(self, frame: JSON) -> None:
        """Keep the names of the calls; a stream brings them in pieces, of which the first has the name."""
        calls = frame.get("tool_calls") or []
        for call in calls if isinstance(calls, list) else [calls]:
            if call.get("name") and call.get("tool_call_id"):
                self.waiting[call["tool_call_id"]] = call["name"]

    def _what_waits(self) -> str:
        names = ", ".join(dict.fromkeys(self.waiting.values()))
        return ("\n\n" if self.message_id else "") + WAITING.format(names=names or "a tool")

    def _separator(self, frame: JSON) -> str:
        earlier, self.message_id = self.message_id, str(frame["id"])
        return "\n\n" if earlier and earlier != self.message_id else ""

    def chunk(self, delta: JSON, finish_reason: str | None = None) -> JSON:
        """Return ChatCompletionChunk."""
        if not self.is_begun:
            self.is_begun, delta = True, {"role": "assistant", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._chunk([choice])

    def last_chunks(self) -> list[JSON]:
        """Return what ends the stream."""
        end = [self.chunk({}, self.finish_reason)]
        usage = {**self._chunk([]), "usage": self.usage or usage_state({})}
        return [*end, usage] if self.includes_usage else end

    def _chunk(self, choices: list[JSON]) -> JSON:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "service_tier": None,
            "system_fingerprint": None,
            "choices": choices,
        }

    def whole(self, response: JSON) -> JSON:
        """Return ChatCompletion of a LettaResponse."""
        frames = [*response["messages"], response["stop_reason"]]
        found = [delta for frame in frames for delta in self.deltas(frame)]
        content = "".join(delta.get("content", "") for delta in found)
        message = {
            "content": content or None,
            "refusal": None,
            "role": "assistant",
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": None,
        }
        choice = {
            "finish_reason": self.finish_reason,
            "index": 0,
            "logprobs": None,
            "message": message,
        }
        return {
            "id": self.id,
            "choices": [choice],
            "created": self.created,
            "model": self.model,
            "object": "chat.completion",
            "moderation": None,
            "service_tier": None,
            "system_fingerprint": None,
            "usage": usage_state(response["usage"]),
        }
