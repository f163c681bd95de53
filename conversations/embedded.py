"""What is embedded of a message: an answer together with the question that it answers."""

from __future__ import annotations

from functools import reduce
from operator import or_

from django.db.models import Q, QuerySet

from conversations.models import Message

QUESTION_CHARS = 300


def embedded_text(text: str, question: str | None = None) -> str:
    """Return the text that a message's vector is made of. "A telescope." alone could be about anybody."""
    return f"{question[-QUESTION_CHARS:]}\n{text}" if question else text


def embedded_texts(messages: QuerySet[Message]) -> dict[int, str]:
    """Return {row: the text to embed} of messages, in their order; two queries."""
    rows = list(messages.values_list("row", "conversation_id", "sequence", "role", "text"))
    wanted: dict[object, list[int]] = {}
    for _, conversation_id, sequence, _, _ in rows:
        wanted.setdefault(conversation_id, []).append(sequence - 1)
    if not rows:
        return {}
    before = Message.objects.filter(
        reduce(or_, (Q(conversation=c, sequence__in=s) for c, s in wanted.items()))
    )
    said = {
        (c, s): (role, text)
        for c, s, role, text in before.values_list("conversation_id", "sequence", "role", "text")
    }
    found = {}
    for row, conversation_id, sequence, role, text in rows:
        previous, question = said.get((conversation_id, sequence - 1), (role, ""))
        is_answer = previous != role and question.rstrip().endswith("?")
        found[row] = embedded_text(text, question if is_answer else None)
    return found
