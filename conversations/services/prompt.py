"""The compiled system prompt: the agent's `system`, its memory blocks, a few facts. Stored as message 1.

It is compiled anew only when its ingredients change, so the provider's prompt cache holds.
"""

from __future__ import annotations

import hashlib
import json

from django.db import transaction
from django.utils import timezone

from agents.files.directories import directories_text
from agents.models import Agent, Block
from agents.selectors import attached_blocks, isolated_copies
from agents.services.memory import has_git_memory
from conversations.models import Conversation, Message

SYSTEM_SEQUENCE = 1


def _block_text(block: Block) -> str:
    limit = f"\n- chars_limit={block.limit}" if block.limit is not None else ""
    read_only = "\n- read_only=true" if block.read_only else ""
    return (
        f"<{block.label}>\n<description>\n{block.description or ''}\n</description>\n<metadata>{read_only}\n"
        f"- chars_current={len(block.value)}{limit}\n</metadata>\n<value>\n{block.value}\n</value>\n</{block.label}>\n"
    )


def visible_blocks(agent: Agent, conversation: Conversation) -> list[Block]:
    """Return the blocks that are rendered: all, or only `system/` in git mode; isolated ones as they are here."""
    blocks = attached_blocks(agent)
    if conversation.isolated_blocks:
        copies = isolated_copies(conversation.isolated_blocks)
        blocks = [copies.get(block.label, block) for block in blocks]
    if has_git_memory(agent):
        blocks = [b for b in blocks if b.label.startswith("system/")]
    return blocks


def _fingerprint(agent: Agent, blocks: list[Block], directories: str) -> str:
    parts: list[object] = [
        agent.system,
        [(b.label, b.value, b.description, b.limit, b.read_only) for b in blocks],
    ]
    if directories:
        parts.append(directories)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def compile_system(
    agent: Agent, conversation: Conversation, blocks: list[Block], directories: str
) -> str:
    """Return the whole system prompt as the model gets it."""
    conversation_name = "default" if conversation.is_default else f"conv-{conversation.pk}"
    stamp = timezone.now().strftime("%Y-%m-%d %I:%M:%S %p UTC%z")
    rendered = "\n".join(_block_text(b) for b in blocks)
    files = f"{directories}\n\n" if directories else ""
    return (
        f"{agent.system}\n\n<memory_blocks>\nThese memory blocks are in view in every turn:\n\n{rendered}\n"
        f"</memory_blocks>\n\n{files}<memory_metadata>\n- AGENT_ID: agent-{agent.pk}\n"
        f"- CONVERSATION_ID: {conversation_name}\n- System prompt last recompiled: {stamp}\n"
        f"- {conversation.message_count} previous messages between you and the user are stored in recall memory\n"
        "</memory_metadata>"
    )


def skills_text(skills: list[dict[str, str]]) -> str:
    """Return what is added to the system prompt of a request that names skills of its client, else ""."""
    if not skills:
        return ""
    lines = [f"- {s['name']} ({s['location']}): {s['description']}" for s in skills]
    listed = "\n".join(lines)
    return f"\n\n<available_skills>\nSkills at the client, loaded by its tools:\n\n{listed}\n</available_skills>"


def is_current(conversation: Conversation) -> bool:
    """Tell whether the stored system message was compiled from the present ingredients."""
    agent = conversation.agent
    blocks = visible_blocks(agent, conversation)
    return _fingerprint(agent, blocks, directories_text(agent)) == conversation.system_fingerprint


def stored_system(conversation: Conversation) -> str:
    """Return the system prompt as it is stored."""
    rows = Message.objects.filter(conversation=conversation, sequence=SYSTEM_SEQUENCE)
    return rows.values_list("text", flat=True).get()


def system_text(conversation: Conversation) -> str:
    """Return the system prompt that the next model call would have; stores nothing."""
    if is_current(conversation):
        return stored_system(conversation)
    agent = conversation.agent
    blocks = visible_blocks(agent, conversation)
    return compile_system(agent, conversation, blocks, directories_text(agent))


def recompile_system(conversation: Conversation, *, is_dry_run: bool, is_forced: bool) -> str:
    """Bring the stored system prompt up to the present memory and return it.

    `is_forced`: also when nothing but the time has changed. `is_dry_run`: only return what it would be.
    """
    agent = conversation.agent
    if is_dry_run and is_forced:
        blocks = visible_blocks(agent, conversation)
        return compile_system(agent, conversation, blocks, directories_text(agent))
    if is_dry_run:
        return system_text(conversation)
    with transaction.atomic():
        locked = (
            Conversation.objects.select_related("agent")
            .select_for_update(of=("self",))
            .get(pk=conversation.pk)
        )
        ensure_system_message(locked, force=is_forced)
        return stored_system(locked)


def ensure_system_message(conversation: Conversation, *, force: bool = False) -> None:
    """Create or refresh the conversation's system message. Call it with the conversation's row locked.

    Sets `last_sequence` and `system_fingerprint` on the object; the caller saves `last_sequence`.
    """
    agent = conversation.agent
    blocks = visible_blocks(agent, conversation)
    directories = directories_text(agent)
    fingerprint = _fingerprint(agent, blocks, directories)
    if fingerprint == conversation.system_fingerprint and not force:
        return
    text = compile_system(agent, conversation, blocks, directories)
    updated = Message.objects.filter(conversation=conversation, sequence=SYSTEM_SEQUENCE).update(
        text=text
    )
    if not updated:
        Message.objects.create(
            conversation=conversation,
            agent=agent,
            sequence=SYSTEM_SEQUENCE,
            role=Message.Role.SYSTEM,
            text=text,
        )
        conversation.last_sequence = max(conversation.last_sequence, SYSTEM_SEQUENCE)
        Conversation.objects.filter(pk=conversation.pk).update(
            last_sequence=conversation.last_sequence
        )
    conversation.system_fingerprint = fingerprint
    Conversation.objects.filter(pk=conversation.pk).update(system_fingerprint=fingerprint)
