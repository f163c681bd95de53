"""Our prompt as a body of Anthropic's `POST /v1/messages`. Pure.

What the API refuses never leaves: empty texts, two messages of one role in a row, a first message
that is not the user's, returns behind other content, foreign characters in call ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from agents.providers.base import ChatMessage, ChatRequest, arguments_object

Block = dict[str, Any]
DEFAULT_MAX_TOKENS = 4096
OPENING = "(The conversation goes on.)"
_CACHED = {"type": "ephemeral"}
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


def payload(request: ChatRequest) -> dict[str, Any]:
    """Give the body of a streamed call.

    The system text and the last message are marked for the prompt cache: an agent sends the same
    beginning with each step.
    """
    leading = _leading_system(request.messages)
    turns = _turns(request.messages[leading:])
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": turns,
        "stream": True,
    }
    system = [block for m in request.messages[:leading] for block in _texts(m.content)]
    if system:
        system[-1]["cache_control"] = _CACHED
        body["system"] = system
    turns[-1]["content"][-1]["cache_control"] = _CACHED
    # 1 is the API's default, and some models refuse to be told any.
    if request.temperature is not None and request.temperature < 1:
        body["temperature"] = max(0.0, request.temperature)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.parallel_tool_calls is False:
            body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    schema = ((request.response_format or {}).get("json_schema") or {}).get("schema")
    if schema:
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return body


def _leading_system(messages: Sequence[ChatMessage]) -> int:
    others = (index for index, m in enumerate(messages) if m.role != "system")
    return next(others, len(messages))


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": tool["name"],
        "description": tool.get("description") or "",
        "input_schema": tool.get("parameters") or {"type": "object", "properties": {}},
    }


def _turns(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Give user and assistant in turn, the user first."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    for turn in turns:
        # Returns stand directly behind their calls; the sort keeps the order otherwise.
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
        if turn["role"] == "assistant":
            turn["content"].sort(key=lambda block: block["type"] == "tool_use")
    return turns


def _blocks(message: ChatMessage) -> list[Block]:
    if message.role == "tool":
        result: Block = {
            "type": "tool_result",
            "tool_use_id": _clean_id(message.tool_call_id),
            "content": _content(message.content),
        }
        if message.is_error:
            result["is_error"] = True
        return [result]
    calls = [
        {
            "type": "tool_use",
            "id": _clean_id(call.id),
            "name": call.name,
            "input": arguments_object(call.arguments),
        }
        for call in message.tool_calls
    ]
    return [*_content(message.content), *calls]


def _clean_id(call_id: str | None) -> str:
    """Give an id that the API takes; a conversation may hold calls of other providers' models."""
    return _FOREIGN.sub("_", call_id or "") or "call"


def _content(content: str | list[dict[str, Any]]) -> list[Block]:
    if isinstance(content, str):
        return _texts(content)
    blocks: list[Block] = []
    for part in content:
        is_image = part.get("type") == "image"
        blocks += [_image(part.get("source") or {})] if is_image else _texts([part])
    return blocks


def _texts(content: str | list[dict[str, Any]]) -> list[Block]:
    texts = [content] if isinstance(content, str) else [str(p.get("text", "")) for p in content]
    return [{"type": "text", "text": text} for text in texts if text.strip()]


def _image(source: dict[str, Any]) -> Block:
    media_type, data = source.get("media_type") or "image/png", source.get("data")
    url = str(source.get("url") or "")
    if not data and url.startswith("data:"):
        head, _, data = url.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0] or media_type
    if data:
        inline = {"type": "base64", "media_type": media_type, "data": data}
        return {"type": "image", "source": inline}
    if url.startswith(("http://", "https://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "text", "text": f"[image: {url or source.get('file_id') or 'missing'}]"}
