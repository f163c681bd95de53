"""Fork a conversation: a new one that begins with the messages of another, shared and not copied."""

from __future__ import annotations

import uuid

from django.db import transaction

from agents.actor import Actor
from conversations.lineage import FIRST_SAID, inherited_up_to, shown_in
from conversations.models import Conversation, Message
from conversations.services import mirror
from conversations.services.isolation import isolate_again
from conversations.services.prompt import ensure_system_message
from souveraine import ids
from souveraine.errors import NotFound

KEPT = ("summary", "description", "model", "model_settings", "context_window", "calibration")


def fork_conversation(
    actor: Actor,
    source: Conversation,
    *,
    message_id: uuid.UUID | None = None,
    is_hidden: bool = False,
) -> Conversation:
    """Return a new conversation that begins with the source's messages, up to and including one of them.

    Its system message is compiled from the present memory; its isolated blocks are copies of the source's.
    What the source says later is not seen. Raises NotFound for a message that the source does not have.
    """
    with transaction.atomic():
        locked = (
            Conversation.objects.select_related("agent")
            .select_for_update(of=("self",))
            .filter(pk=source.pk, deleted_at__isnull=True)
            .first()
        )
        if locked is None:
            raise NotFound(f"Conversation not found with id='conv-{source.pk}'")
        last = _last_sequence(locked, message_id)
        fork = Conversation(
            agent=locked.agent,
            created_by=actor.user_id,
            last_updated_by=actor.user_id,
            hidden=is_hidden,
            inherited=inherited_up_to(locked, last),
            isolated_blocks=isolate_again(actor, locked),
            last_sequence=last,
            last_message_at=locked.last_message_at,
            **{name: getattr(locked, name) for name in KEPT},
        )
        _set_window(fork, locked, last)
        fork.save(force_insert=True)
        ensure_system_message(fork)
    mirror.write_metadata(fork)
    return fork


def _last_sequence(source: Conversation, message_id: uuid.UUID | None) -> int:
    if message_id is None:
        return max(source.last_sequence, FIRST_SAID - 1)
    rows = Message.objects.filter(shown_in(source), id=message_id)
    found = rows.values_list("sequence", flat=True).first()
    if found is None:
        raise NotFound(
            f"No message found with id '{ids.make(ids.MESSAGE, message_id)}' for conversation 'conv-{source.pk}'."
        )
    return found


def _set_window(fork: Conversation, source: Conversation, last: int) -> None:
    """Let the window begin where the source's did when `last` was its newest message."""
    if last == source.last_sequence:
        for name in ("window_start", "message_count", "turn_count", "context_tokens"):
            setattr(fork, name, getattr(source, name))
        fork.context_pressure = source.context_pressure
        return
    summaries = Message.objects.filter(
        shown_in(source), role=Message.Role.SUMMARY, sequence__lte=last
    )
    newest = summaries.order_by("-sequence").first()
    fork.window_start = int((newest.compaction or {}).get("window_start", 0)) if newest else 0
    said = Message.objects.filter(shown_in(source), sequence__lte=last).exclude(text="")
    fork.message_count = said.filter(role__in=[Message.Role.USER, Message.Role.ASSISTANT]).count()
    fork.turn_count = said.filter(role=Message.Role.USER).count()
