"""From rows to the prompt: repair and conversion (architecture §5.6).

Whatever happened before, the list that goes to the provider is valid: each tool call has exactly one
return, right behind its message; a return without a call is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.providers.base import ChatMessage, ToolCallRequest
from conversations.models import Message
from conversations.services.summaries import IN_WINDOW
from souveraine.lib.text import bad_text_place, clean_json

NO_OUTCOME = "No result was recorded for this call: the turn ended before it returned. Its outcome is unknown."


@dataclass(frozen=True)
class Item:
    """What repair needs of a row; built from Message rows, or by hand in tests."""

    role: str
    text: str = ""
    content: list[dict[str, Any]] | None = None
    calls: tuple[ToolCallRequest, ...] = ()
    call_id: str = ""
    name: str | None = None
    is_error: bool = False
    is_said: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


def item_of(message: Message) -> Item:
    """Read a row."""
    calls = tuple(
        ToolCallRequest(id=c["id"], name=c["name"], arguments=valid_arguments(c["arguments"]))
        for c in message.tool_calls
    )
    return Item(
        role=message.role,
        text=message.text,
        content=message.content,
        calls=calls,
        call_id=message.tool_call_id,
        name=message.name,
        is_error=message.status == "error",
        is_said=message.is_said,
    )


def valid_arguments(arguments: str) -> str:
    """Return the arguments when they are a usable JSON object, else a usable one.

    Providers refuse a history with broken JSON or half an emoji, for ever.
    """
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return "{}"
    if not isinstance(parsed, dict):
        return "{}"
    return arguments if bad_text_place(parsed) is None else json.dumps(clean_json(parsed))


def repair_pairs(items: Sequence[Item]) -> list[Item]:
    """Return the items with every tool call answered exactly once, directly behind its message.

    Idempotent. The stored rows stay as they are; only the compiled prompt is repaired.
    """
    out: list[Item] = []
    position = 0
    while position < len(items):
        item = items[position]
        position += 1
        if item.role == "tool":
            continue  # a return nobody asked for: those asked for are taken below
        if not item.calls:
            if item.text or item.content or item.role != "assistant":
                out.append(item)
            continue
        returns, said_meanwhile, position = _until_next_answer(items, position)
        out.append(item)
        for call in item.calls:
            given = returns.get(call.id)
            out.append(
                given.pop(0)
                if given
                else Item(
                    role="tool", text=NO_OUTCOME, call_id=call.id, name=call.name, is_error=True
                )
            )
        out.extend(said_meanwhile)
    return out


def _until_next_answer(
    items: Sequence[Item], position: int
) -> tuple[dict[str, list[Item]], list[Item], int]:
    """Return the tool returns up to the next assistant item, what was said among them, and where that is.

    A decision may bring more messages, which are stored before the tool has run.
    """
    returns: dict[str, list[Item]] = {}
    said: list[Item] = []
    while position < len(items) and (
        items[position].role != "assistant" or items[position].is_said
    ):
        item = items[position]
        if item.role == "tool":
            returns.setdefault(item.call_id, []).append(item)
        else:
            said.append(item)
        position += 1
    return returns, said, position


def to_chat(item: Item) -> ChatMessage:
    """Convert one item to the providers' type."""
    if item.role == "tool":
        return ChatMessage(
            role="tool",
            content=item.text,
            tool_call_id=item.call_id,
            name=item.name,
            is_error=item.is_error,
        )
    if item.role == "assistant":
        return ChatMessage(role="assistant", content=item.text, tool_calls=item.calls)
    if item.role == "summary":
        return ChatMessage(role="user", content=IN_WINDOW.render(summary=item.text))
    role = "system" if item.role == "system" else "user"
    return ChatMessage(role=role, content=item.content or item.text, name=item.name)  # type: ignore[arg-type]


def compile_history(messages: Sequence[Message], system: str) -> list[ChatMessage]:
    """Return the prompt: the system text, then the repaired window, oldest first."""
    items = repair_pairs([item_of(m) for m in messages if m.role != Message.Role.APPROVAL])
    return [ChatMessage(role="system", content=system), *(to_chat(item) for item in items)]
