"""From a send body to what `accept_turn` takes: text or parts, otids, with clear refusals."""

from __future__ import annotations

from typing import Any

from conversations.api.approvals import incoming_approval, is_decision
from conversations.api.bodies import MessageCreate, SendMessage
from conversations.api.images import check_number, checked_image
from conversations.services.accept import Incoming, IncomingMessage, TurnOptions
from souveraine.api.validation import failed, parse_data
from souveraine.errors import ValidationFailed

PART_TYPES = ("text", "image")


def incoming_messages(body: SendMessage) -> list[Incoming]:
    """Read `messages`, `input` or `message`. Raises ValidationFailed (422)."""
    if body.messages is not None:
        raw = body.messages
    else:
        raw = [{"role": "user", "content": body.input if body.input is not None else body.message}]
    if not raw:
        raise ValidationFailed("Messages must not be empty")
    read = [_incoming(item, index) for index, item in enumerate(raw)]
    # What decides comes first: a message beside it is said after the calls have returned.
    return sorted(read, key=lambda message: isinstance(message, IncomingMessage))


def initial_messages(sequence: list[dict[str, Any]] | None) -> list[Incoming]:
    """Read `initial_message_sequence` of a new agent. Raises ValidationFailed (422)."""
    return [_incoming(item, index) for index, item in enumerate(sequence or [])]


def _incoming(item: dict[str, Any], index: int) -> Incoming:
    if is_decision(item):
        return incoming_approval(item, index)
    message = parse_data(MessageCreate, item)
    text, content = _content(message.content, index)
    if not text.strip() and not content:
        raise failed(
            "value_error",
            ("body", "messages", index, "content"),
            "The message is empty: write some text.",
        )
    return IncomingMessage(
        message.role, text, content, message.otid, message.name, message.sender_id
    )


def _content(
    content: str | list[dict[str, Any]], index: int
) -> tuple[str, list[dict[str, Any]] | None]:
    """Return the plain text, and the parts when they are more than one text part."""
    if isinstance(content, str):
        return content, None
    texts, kept = [], []
    check_number(content, ("body", "messages", index, "content"))
    for number, part in enumerate(content):
        loc = ("body", "messages", index, "content", number)
        if part.get("type") not in PART_TYPES:
            raise failed(
                "union_tag_invalid",
                loc,
                f"Content parts can be {' or '.join(PART_TYPES)}.",
                part.get("type"),
            )
        if part["type"] == "text":
            if not isinstance(part.get("text"), str):
                raise failed(
                    "string_type",
                    (*loc, "text"),
                    "Input should be a valid string",
                    part.get("text"),
                )
            texts.append(part["text"])
            kept.append(part)
        else:
            kept.append(checked_image(part, loc))
    is_plain = len(content) == 1 and content[0]["type"] == "text"
    return "\n".join(texts), None if is_plain else kept


def turn_options(body: SendMessage, *, run_type: str, is_streaming: bool) -> TurnOptions:
    """Return what the run keeps of the request."""
    return TurnOptions(
        run_type=run_type,
        max_steps=body.max_steps,
        stream_tokens=body.stream_tokens and is_streaming,
        background=body.background,
        when_busy=body.when_busy,
        override_model=body.override_model,
        override_system=body.override_system,
        include_return_message_types=body.include_return_message_types,
        include_compaction_messages=body.include_compaction_messages,
        client_tools=[tool.as_schema() for tool in body.client_tools or ()],
        client_skills=[skill.model_dump() for skill in body.client_skills or ()],
    )
