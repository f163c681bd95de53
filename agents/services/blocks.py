"""Writes to memory blocks, by the API and by the agent's tools: limits and read_only are enforced here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from agents.actor import Actor
from agents.models import Agent, AgentBlock, Block
from agents.selectors import attached_blocks
from agents.services import memory
from agents.services.portable import write_agent_json
from memfs import API_AUTHOR, Author, BlockFile, check_path, label_to_path
from souveraine.api.pagination import PageQuery
from souveraine.errors import Conflict, InvalidArgument, NotFound

DEFAULT_LIMIT_CHARS = 100_000
DESCRIPTIONS = {
    "persona": "Who the agent is: its character, voice and ways. Read it as a description of yourself.",
    "human": "What the agent knows about the person it talks with. Keep it true and up to date.",
    "subconscious": "What the agent's background mind wants it to keep in view.",
}
FILE_FIELDS = ("value", "description", "limit", "read_only", "metadata")
ROW_FIELDS = ("tags", "hidden")
CLEARABLE = ("description", "limit", "metadata")  # null clears these; elsewhere it says nothing


def check_label(label: str) -> None:
    """Raise InvalidArgument when a label cannot be a file path."""
    if not label or len(label) > 200 or label != label.strip():
        raise InvalidArgument(
            f"The block label {label[:60]!r} is not usable: use 1–200 characters without outer spaces."
        )
    check_path(label_to_path(label, git_memory=False))


def check_limit(label: str, value: str, limit: int | None) -> None:
    """Raise InvalidArgument naming both numbers when `value` is longer than `limit` characters."""
    if limit is not None and len(value) > limit:
        raise InvalidArgument(
            f"Block '{label}' would hold {len(value)} characters, its limit is {limit}. Shorten the value or "
            "raise the limit."
        )


def new_block(actor: Actor, data: dict[str, Any], *, own: Agent | None = None) -> Block:
    """Return an unsaved row from CreateBlock fields. Raises InvalidArgument."""
    label, value = data["label"], data.get("value") or ""
    check_label(label)
    limit = data.get("limit", DEFAULT_LIMIT_CHARS) or None  # 0 and null = unlimited (K20)
    check_limit(label, value, limit)
    return Block(
        owner=actor.user,
        created_by=actor.user_id,
        last_updated_by=actor.user_id,
        label=label,
        value=value,
        limit=limit,
        description=data["description"]
        if data.get("description") is not None
        else DESCRIPTIONS.get(label),
        read_only=bool(data.get("read_only")),
        metadata=data.get("metadata") or {},
        tags=data.get("tags") or [],
        hidden=data.get("hidden"),
        config={**(data.get("config") or {}), **({"own": str(own.pk)} if own else {})},
    )


def create_block(actor: Actor, data: dict[str, Any]) -> Block:
    """Create a block attached to no agent."""
    block = new_block(actor, data)
    block.save()
    return block


def _changed_file(file: BlockFile, changes: dict[str, Any], *, by_agent: bool) -> BlockFile:
    """Apply changes to a file's fields, with the rules. Raises InvalidArgument."""
    fields = {
        name: changes[name]
        for name in FILE_FIELDS
        if name in changes and (changes[name] is not None or name in CLEARABLE)
    }
    if "limit" in fields:
        fields["limit"] = fields["limit"] or None
    if "metadata" in fields:
        fields["metadata"] = fields["metadata"] or {}
    after = replace(file, **fields)
    unlocks = not by_agent and changes.get("read_only") is False
    if file.read_only and after.value != file.value and not unlocks:
        raise InvalidArgument(
            f"Block '{file.label}' is read-only, so its value was not changed. Set read_only to false first."
        )
    if "value" in fields or "limit" in fields:
        check_limit(file.label, after.value, after.limit)
    return after


def update_block(
    actor: Actor, block: Block, changes: dict[str, Any], author: Author = API_AUTHOR
) -> Block:
    """Change a block by API; every attached agent's repository gets one commit.

    Raises InvalidArgument (limit, read_only, label), Conflict (label taken).
    """
    if changes.get("label") and changes["label"] != block.label:
        block = _rename(block, changes["label"], author)
    return edit_block(
        block,
        lambda file: _changed_file(file, changes, by_agent=False),
        author,
        actor=actor,
        rest=changes,
    )


def edit_block(
    block: Block,
    change: Callable[[BlockFile], BlockFile],
    author: Author,
    *,
    actor: Actor | None = None,
    rest: dict[str, Any] | None = None,
) -> Block:
    """Read-modify-write a block where its truth is: the one agent's file, else the row (then projected)."""
    agents = list(Agent.objects.filter(block_rows__block=block))
    row_changes = {name: rest[name] for name in ROW_FIELDS if rest and name in rest}
    if "tags" in row_changes:
        row_changes["tags"] = row_changes["tags"] or []
    if actor is not None:
        row_changes["last_updated_by"] = actor.user_id
    if row_changes:
        Block.objects.filter(pk=block.pk).update(**row_changes)
    if len(agents) == 1:
        memory.edit_file(agents[0], block, change, author)
    else:
        _edit_row(block, change)
        fresh = Block.objects.get(pk=block.pk)
        for agent in agents:
            memory.project_block(agent, fresh, author)
            memory.sync_blocks(agent)
    for agent in agents:
        touch_agent(agent)
    return Block.objects.get(pk=block.pk)


def _edit_row(block: Block, change: Callable[[BlockFile], BlockFile]) -> None:
    """Change the row under its lock, so that of many at once each is applied to the one before."""
    with transaction.atomic():
        current = Block.objects.select_for_update().filter(pk=block.pk).first()
        if current is None:
            raise NotFound(f"Block with id 'block-{block.pk}' not found")
        after = change(memory.block_file(current))
        for name in FILE_FIELDS:
            setattr(current, name, getattr(after, name))
        memory.remember_rendering(current)  # in the same UPDATE: a copy of it is never an edit
        Block.objects.filter(pk=block.pk).update(
            **{name: getattr(after, name) for name in FILE_FIELDS},
            rendered=current.rendered,
            version=F("version") + 1,
            updated_at=timezone.now(),
        )


def _rename(block: Block, label: str, author: Author) -> Block:
    """Move the block's files; the rows follow, because a moved file is known by the id in it."""
    check_label(label)
    rows = list(AgentBlock.objects.filter(block=block).select_related("agent"))
    for row in rows:
        if AgentBlock.objects.filter(agent=row.agent, label=label).exists():
            raise Conflict(f"The agent already has a block with label '{label}'.")
    if not rows:
        Block.objects.filter(pk=block.pk).update(label=label, updated_at=timezone.now())
    old = block.label
    for row in rows:
        git_memory = memory.has_git_memory(row.agent)
        repository = memory.repository_of(row.agent)
        old_path, new_path = label_to_path(old, git_memory), label_to_path(label, git_memory)
        memory.project_block(row.agent, block, author)
        repository.write_many(
            {old_path: None, new_path: repository.read(old_path)}, author, f"Update {new_path}"
        )
        memory.sync_blocks(row.agent)
    return Block.objects.get(pk=block.pk)


def attach_block(agent: Agent, block: Block, author: Author = API_AUTHOR) -> None:
    """Attach a block; attaching twice changes nothing. Raises Conflict when the label is taken.

    A crash before the file is written is mended by the next `sync_blocks` of the agent.
    """
    if AgentBlock.objects.filter(agent=agent, block=block).exists():
        return
    if AgentBlock.objects.filter(agent=agent, label=block.label).exists():
        raise Conflict(
            f"The agent already has a block with label '{block.label}'. Rename or detach that one first."
        )
    check_label(block.label)
    memory.note_rendering(block)
    with transaction.atomic():
        memory.attach_row(agent, block)
    memory.project_block(agent, block, author)
    memory.sync_blocks(agent)
    touch_agent(agent)


def detach_block(agent: Agent, block: Block, author: Author = API_AUTHOR) -> None:
    """Detach a block and remove its file; the block itself stays. Idempotent.

    The file goes first: a crash then leaves a row without file, which the next sync detaches.
    """
    if not AgentBlock.objects.filter(agent=agent, block=block).exists():
        return
    Block.objects.filter(pk=block.pk).update(config={**block.config, "own": None})
    for other in Agent.objects.filter(block_rows__block=block).exclude(pk=agent.pk):
        memory.project_block(other, block, author)  # the last one's file becomes the truth
    path = label_to_path(block.label, memory.has_git_memory(agent))
    memory.repository_of(agent).write_many({path: None}, author, f"Update {path}")
    AgentBlock.objects.filter(agent=agent, block=block).delete()
    memory.sync_blocks(agent)
    touch_agent(agent)


def replace_blocks(agent: Agent, blocks: list[Block]) -> None:
    """Attach exactly these blocks. Raises Conflict when a label is taken."""
    wanted = {b.pk for b in blocks}
    for row in list(AgentBlock.objects.filter(agent=agent).select_related("block")):
        if row.block_id not in wanted:
            detach_block(agent, row.block)
    for block in blocks:
        attach_block(agent, block)


def check_put(actor: Actor, agent: Agent, item: dict[str, Any]) -> None:
    """Raise what `put_block` would raise, before anything of the request is stored."""
    try:
        block = block_of_agent(agent, item["label"])
    except NotFound:
        new_block(actor, item, own=agent)
        return
    _changed_file(memory.block_file(block), item, by_agent=False)


def put_block(actor: Actor, agent: Agent, item: dict[str, Any]) -> None:
    """Change the block of that label, or add it (the seed's AgentUpdate.memory_blocks)."""
    try:
        block = block_of_agent(agent, item["label"])
    except NotFound:
        fresh = new_block(actor, item, own=agent)
        fresh.save()
        attach_block(agent, fresh)
        return
    update_block(actor, block, {k: v for k, v in item.items() if k != "label"}, API_AUTHOR)


def delete_block(block: Block, author: Author = API_AUTHOR) -> None:
    """Delete a block and detach it everywhere."""
    for agent in list(Agent.objects.filter(block_rows__block=block)):
        detach_block(agent, block, author)
    Block.objects.filter(pk=block.pk).delete()


def _other_forms(label: str) -> tuple[str, ...]:
    """Return a label as it was given, and with and without the prefix of git memory."""
    return (label, label.removeprefix("system/"), f"system/{label}")


def _isolated_block(label: str, isolated: Mapping[str, str]) -> Block | None:
    block_id = next((isolated[form] for form in _other_forms(label) if form in isolated), None)
    return Block.objects.filter(pk=block_id).first() if block_id else None


def block_of_agent(agent: Agent, label: str) -> Block:
    """Return the agent's block by label, with or without the `system/` prefix. Raises NotFound."""
    memory.sync_blocks(agent)
    for candidate in _other_forms(label):
        row = (
            AgentBlock.objects.filter(agent=agent, label=candidate).select_related("block").first()
        )
        if row is not None:
            row.block.label = row.label
            return row.block
    raise NotFound(f"No block with label '{label}' found for agent 'agent-{agent.pk}'")


def edit_by_agent(
    agent: Agent,
    label: str,
    change: Callable[[str], str],
    author: Author,
    isolated: Mapping[str, str] | None = None,
) -> str:
    """Let the agent's own tool change a block's value; returns the new value.

    `isolated` are the blocks that the conversation has for itself: then those are changed. Raises NotFound,
    InvalidArgument (read-only, over the limit, or what `change` raises).
    """
    block = _isolated_block(label, isolated) if isolated else None
    block = block or block_of_agent(agent, label)
    result = edit_block(
        block,
        lambda file: _changed_file(file, {"value": change(file.value)}, by_agent=True),
        author,
    )
    return result.value


def touch_agent(agent: Agent) -> None:
    """Move `updated_at` and rewrite agent.json."""
    now = timezone.now()
    Agent.objects.filter(pk=agent.pk).update(updated_at=now)
    agent.updated_at = now
    write_agent_json(agent)


def page_of_agent(actor: Actor, agent: Agent, query: PageQuery) -> list[Block]:
    """Return a page of the agent's blocks in prompt order; cursors are block ids, order desc is reversed.

    Raises NotFound for a cursor that is not attached.
    """
    blocks = attached_blocks(agent)
    if query.order == "desc":
        blocks = blocks[::-1]
    positions = {f"block-{b.pk}": i for i, b in enumerate(blocks)}
    start, end = 0, len(blocks)
    for text in filter(None, (query.after, query.before)):
        if f"block-{text.removeprefix('block-')}" not in positions:
            raise NotFound(f"Block with id '{text}' is not attached to agent 'agent-{agent.pk}'")
    if query.after:
        start = positions[f"block-{query.after.removeprefix('block-')}"] + 1
    if query.before:
        end = positions[f"block-{query.before.removeprefix('block-')}"]
    return blocks[start:end][: query.limit]
