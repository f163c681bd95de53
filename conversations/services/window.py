"""The one place that moves the start of the prompt window; others only supply summaries (architecture §4).

Rows stay; a turn loads only what lies inside the window, so its cost does not grow with the history.
"""

from __future__ import annotations

import json
from typing import Any

from conversations.models import Conversation, Message

CHARS_PER_TOKEN = 3.6  # an estimate for models whose provider has not counted yet
TARGET_SHARE = (
    0.7  # after a cut this much of the budget is used, so that the cut (and cache loss) is rare
)
MESSAGE_OVERHEAD_TOKENS = 6
IMAGE_TOKENS = 1000


def estimate_tokens(message: Message) -> int:
    """Estimate the prompt tokens of one row."""
    chars = len(message.text) + sum(
        len(c["name"]) + len(c["arguments"]) for c in message.tool_calls
    )
    images = 0
    for part in message.content or []:
        images += part.get("type") == "image"
    return int(chars / CHARS_PER_TOKEN) + images * IMAGE_TOKENS + MESSAGE_OVERHEAD_TOKENS


def estimate_text_tokens(value: Any) -> int:
    """Estimate the tokens of a text, or of JSON such as tool schemas."""
    text = value if isinstance(value, str) else json.dumps(value)
    return int(len(text) / CHARS_PER_TOKEN)


def load_window(conversation: Conversation) -> list[Message]:
    """Return the rows of the window without system messages of the compiled prompt, oldest first."""
    return list(
        Message.objects.filter(
            conversation=conversation, sequence__gte=max(conversation.window_start, 2)
        ).order_by("sequence")
    )


def fit_window(conversation: Conversation, budget_tokens: int) -> list[Message]:
    """Return the window's rows, first moving its start when they exceed `budget_tokens`.

    The cut falls before a user message, so no call is parted from its return; the last user message
    always stays. Idempotent.
    """
    rows = load_window(conversation)
    costs = [estimate_tokens(row) for row in rows]
    total = sum(costs)
    if total <= budget_tokens:
        return rows
    starts = [i for i, row in enumerate(rows) if row.role == Message.Role.USER]
    chosen = 0
    for index in starts:
        chosen = index
        if sum(costs[index:]) <= budget_tokens * TARGET_SHARE:
            break
    if chosen:
        move_start(conversation, rows[chosen].sequence)
    return rows[chosen:]


def move_start(conversation: Conversation, sequence: int) -> None:
    """Let the window begin at `sequence`. Never moves back."""
    Conversation.objects.filter(pk=conversation.pk, window_start__lt=sequence).update(
        window_start=sequence
    )
    conversation.window_start = max(conversation.window_start, sequence)
