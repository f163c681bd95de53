"""Blocks that a conversation has for itself: copies, so that what happens in it stays out of the others."""

from __future__ import annotations

from collections.abc import Iterable

from agents.actor import Actor
from agents.models import Agent, Block
from agents.selectors import attached_blocks, isolated_copies
from conversations.models import Conversation
from souveraine.errors import InvalidArgument

COPIED = ("value", "limit", "description", "read_only", "metadata", "tags", "hidden")


def isolate(actor: Actor, agent: Agent, labels: Iterable[str]) -> dict[str, str]:
    """Copy the agent's blocks of these labels; returns {label: id of the copy}. Raises InvalidArgument.

    The copies belong to no agent, so their rows are the truth and no repository changes.
    """
    wanted = list(dict.fromkeys(labels))
    if not wanted:
        return {}
    blocks = {block.label: block for block in attached_blocks(agent)}
    missing = [label for label in wanted if label not in blocks]
    if missing:
        raise InvalidArgument(
            f"The agent has no block {', '.join(map(repr, missing))[:300]}, so it cannot be isolated. It has: "
            f"{', '.join(sorted(blocks))[:1000]}."
        )
    return _copied(actor, {label: blocks[label] for label in wanted})


def isolate_again(actor: Actor, conversation: Conversation) -> dict[str, str]:
    """Copy the copies of a conversation for a fork of it; returns {label: id of the copy}."""
    return _copied(actor, isolated_copies(conversation.isolated_blocks))


def _copied(actor: Actor, blocks: dict[str, Block]) -> dict[str, str]:
    copies = {
        label: Block(
            owner=actor.user,
            created_by=actor.user_id,
            last_updated_by=actor.user_id,
            label=label,
            **{name: getattr(block, name) for name in COPIED},
        )
        for label, block in blocks.items()
    }
    Block.objects.bulk_create(copies.values())
    return {label: str(copy.pk) for label, copy in copies.items()}


def isolated_ids(agent: Agent) -> list[str]:
    """Return the ids of all copies that the agent's conversations have."""
    found = Conversation.objects.filter(agent=agent).exclude(isolated_blocks={})
    return [
        pk for copies in found.values_list("isolated_blocks", flat=True) for pk in copies.values()
    ]
