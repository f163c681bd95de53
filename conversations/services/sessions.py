"""Create, change and delete conversations. A conversation is never removed while it can be answered for."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.actor import Actor
from agents.models import Agent
from conversations.models import Conversation, Run
from conversations.models.run import UNENDED
from conversations.services import mirror
from conversations.services.announce import announce
from conversations.services.cancel import cancel_runs
from conversations.services.isolation import isolate
from conversations.services.prompt import ensure_system_message

CHANGEABLE = (
    "summary",
    "description",
    "model",
    "model_settings",
    "context_window",
    "last_message_at",
    "archived_at",
)


def create_conversation(
    actor: Actor, agent: Agent, data: dict[str, Any] | None = None
) -> Conversation:
    """Create a conversation with its compiled system message. Raises InvalidArgument (isolated labels)."""
    data = data or {}
    with transaction.atomic():
        conversation = Conversation.objects.create(
            agent=agent,
            created_by=actor.user_id,
            last_updated_by=actor.user_id,
            summary=data.get("summary"),
            isolated_blocks=isolate(actor, agent, data.get("isolated_block_labels") or []),
            model=data.get("model"),
            model_settings=data.get("model_settings"),
            context_window=data.get("context_window_limit"),
            description=data.get("description"),
        )
        ensure_system_message(conversation)
    mirror.write_metadata(conversation)
    return conversation


def default_conversation(actor: Actor, agent: Agent) -> Conversation:
    """Return the agent's default conversation, made at first use. Two at once get the same one."""
    found = Conversation.objects.filter(agent=agent, is_default=True).first()
    if found is not None:
        found.agent = agent
        return found
    try:
        with transaction.atomic():
            conversation = Conversation.objects.create(
                agent=agent,
                is_default=True,
                created_by=actor.user_id,
                last_updated_by=actor.user_id,
            )
            ensure_system_message(conversation)
    except IntegrityError:
        return Conversation.objects.get(agent=agent, is_default=True)
    mirror.write_metadata(conversation)
    return conversation


def update_conversation(
    actor: Actor, conversation: Conversation, data: dict[str, Any]
) -> Conversation:
    """Change what `data` names of UpdateConversation; null clears, and `archived` keeps its first time."""
    data = dict(data)
    if "context_window_limit" in data:
        data["context_window"] = data.pop("context_window_limit")
    if (archived := data.pop("archived", None)) is not None:
        data["archived_at"] = (conversation.archived_at or timezone.now()) if archived else None
    fields = [name for name in CHANGEABLE if name in data]
    for name in fields:
        setattr(conversation, name, data[name])
    conversation.last_updated_by, conversation.updated_at = actor.user_id, timezone.now()
    conversation.save(update_fields=[*fields, "last_updated_by", "updated_at"])
    mirror.write_metadata(conversation)
    return conversation


def delete_conversation(actor: Actor, conversation: Conversation) -> None:
    """Hide a conversation; its rows stay. A live run is cancelled. Idempotent."""
    now = timezone.now()
    Conversation.objects.filter(pk=conversation.pk, deleted_at__isnull=True).update(
        # A new default one is made when it is needed: the agent's own endpoints must go on.
        deleted_at=now,
        is_default=False,
        updated_at=now,
        last_updated_by=actor.user_id,
    )
    cancel_runs(Run.objects.filter(conversation=conversation, status__in=UNENDED))
    announce(conversation.pk)
    conversation.deleted_at = now
    mirror.write_metadata(conversation)


def reset_default_conversation(actor: Actor, agent: Agent) -> Conversation:
    """Begin the agent's default conversation anew; a live run of the old one is cancelled.

    The old rows stay hidden: forks may share them. Of two at once both succeed.
    """
    old = Conversation.objects.filter(agent=agent, is_default=True).first()
    if old is not None:
        delete_conversation(actor, old)
    return default_conversation(actor, agent)
