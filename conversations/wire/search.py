"""What a search in messages found, as Letta's clients read it. `snippet` and the places are ours and come last."""

from __future__ import annotations

from typing import Any

from conversations.models import Message
from conversations.search import FoundMessage
from conversations.wire.context import stored_message
from conversations.wire.states import moment
from souveraine import ids

KINDS = {
    Message.Role.SYSTEM: "system_message",
    Message.Role.USER: "user_message",
    Message.Role.ASSISTANT: "assistant_message",
}


def _place(found: FoundMessage) -> dict[str, Any]:
    """Return where it is: `position` in characters of the text, `sequence` in the conversation."""
    return {
        "snippet": found.snippet.text,
        "position": found.snippet.position,
        "sequence": found.message.sequence,
    }


def message_search_result(found: FoundMessage) -> dict[str, Any]:
    """Return MessageSearchResult; read the message with its agent. `rrf_score` is our fused score."""
    return {
        "embedded_text": found.message.text,
        "message": stored_message(found.message, found.message.agent.owner_id),
        "fts_rank": found.text_rank,
        "vector_rank": found.vector_rank,
        "rrf_score": round(found.score, 6),
        **_place(found),
    }


def message_list_result(found: FoundMessage) -> dict[str, Any]:
    """Return UserMessageListResult or AssistantMessageListResult."""
    message = found.message
    return {
        "message_type": KINDS[Message.Role(message.role)],
        "content": message.content or message.text,
        "message_id": ids.make(ids.MESSAGE, message.id),
        "agent_id": ids.make(ids.AGENT, message.agent_id),
        "conversation_id": ids.make(ids.CONVERSATION, message.conversation_id),
        "created_at": moment(message.created_at),
        **_place(found),
    }
