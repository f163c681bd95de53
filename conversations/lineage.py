"""The messages of a conversation that began as a fork: those of others up to the fork, then its own.

Bodies live once: a fork shares rows instead of copying them, so it costs the same for any history, and the
agent's search and lists have each message once. `Conversation.inherited` is a list of
{"conversation": id, "first", "last"}, oldest first; the sequences of a fork go on behind its last one, so
`sequence` orders all of it. Rows of a deleted conversation stay, so what was forked from it stays whole.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

from conversations.models import Conversation, Message

FIRST_SAID = (
    2  # before it there is only the compiled system message, which each conversation has of its own
)


def _segments(conversation: Conversation) -> list[tuple[Any, int, int | None]]:
    """Return (conversation id, first, last) of all parts, newest first; the own part has no last one."""
    shared = [(s["conversation"], s["first"], s["last"]) for s in conversation.inherited]
    begins = shared[-1][2] + 1 if shared else FIRST_SAID
    return [(conversation.pk, begins, None), *reversed(shared)]


def shown_in(conversation: Conversation, since: int = 0) -> Q:
    """Return the condition for the rows of a conversation from `since` on, inherited ones among them.

    The bound stands in each part, or the database would read all of a long history for its end.
    """
    condition = Q(conversation=conversation, sequence__gte=since)
    for shared in conversation.inherited:
        first = max(shared["first"], since)
        if first <= shared["last"]:
            condition |= Q(
                conversation_id=shared["conversation"],
                sequence__gte=first,
                sequence__lte=shared["last"],
            )
    return condition


def lineage_page(
    conversation: Conversation,
    *,
    ascending: bool,
    limit: int,
    newer_than: int | None = None,
    older_than: int | None = None,
    where: Q | None = None,
) -> list[Message]:
    """Return at most `limit` messages in order of their sequences; one query per part that is touched.

    Each part is an index range of its own: an OR over them would sort the whole history.
    """
    own, *shared = _segments(conversation)
    parts: list[QuerySet[Message]] = [_range(own)]
    parts += [_range(segment) for segment in shared]
    parts.append(Message.objects.filter(conversation=conversation, sequence__lt=FIRST_SAID))
    if not conversation.inherited:
        parts = [Message.objects.filter(conversation=conversation)]
    found: list[Message] = []
    for part in reversed(parts) if ascending else parts:
        if where:
            part = part.filter(where)
        if newer_than is not None:
            part = part.filter(sequence__gt=newer_than)
        if older_than is not None:
            part = part.filter(sequence__lt=older_than)
        wanted = limit - len(found)
        found += part.order_by("sequence" if ascending else "-sequence")[:wanted]
        if len(found) >= limit:
            break
    return found


def _range(segment: tuple[Any, int, int | None]) -> QuerySet[Message]:
    conversation_id, first, last = segment
    rows = Message.objects.filter(conversation_id=conversation_id, sequence__gte=first)
    return rows if last is None else rows.filter(sequence__lte=last)


def inherited_up_to(conversation: Conversation, sequence: int) -> list[dict[str, Any]]:
    """Return `inherited` for a fork of the conversation that begins with all up to `sequence`."""
    kept = []
    for conversation_id, first, last in reversed(_segments(conversation)):
        end = sequence if last is None else min(last, sequence)
        if first <= end:
            kept.append({"conversation": str(conversation_id), "first": first, "last": end})
    return kept


def is_inherited(message: Message) -> bool:
    """Tell whether a conversation that is there has begun with this message of another."""
    forks = Conversation.objects.filter(agent_id=message.agent_id, deleted_at__isnull=True)
    source = str(message.conversation_id)
    return any(
        shared["conversation"] == source and shared["first"] <= message.sequence <= shared["last"]
        for inherited in forks.exclude(inherited=[]).values_list("inherited", flat=True)
        for shared in inherited
    )
