"""Create agents, all or nothing: folder and rows appear together.

In three parts, so that several can be created in one transaction: `draft_agent` checks and builds the folder
under a temporary name, `save_draft` writes the rows and puts the folder in place, `discard` takes away what
is left when that fails.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import IntegrityError, transaction

from agents.actor import Actor
from agents.models import Agent, AgentBlock, AgentTool, Block, Identity, Tool
from agents.providers.base import ModelInfo
from agents.services import memory
from agents.services.agents import (
    CONFIG_KEYS,
    DIRECT,
    choose_model,
    find_blocks,
    find_tools,
    model_fields,
    save_secrets,
    save_tags,
    seed_fields,
)
from agents.services.approvals import with_default_rules
from agents.services.blocks import attach_block, new_block
from agents.services.folders import attach_folder, find_folders
from agents.services.identities import find_identities
from agents.services.portable import write_agent_json
from memfs import SYSTEM_AUTHOR, label_to_path, render_block_file
from souveraine import ids
from souveraine.errors import Conflict, InvalidArgument

DEFAULT_SYSTEM = (
    (Path(__file__).resolve().parent.parent / "prompts" / "system.md")
    .read_text(encoding="utf-8")
    .strip()
)
CLOISTER_BLOCKS = ("persona", "human", "subconscious")


@dataclass
class AgentDraft:
    """An agent that is not there yet: unsaved rows, and its folder under a temporary name."""

    agent: Agent
    blocks: list[Block]
    tools: list[Tool]
    data: dict[str, Any]
    folder: Path
    attached: list[Block] = field(default_factory=list)
    identities: list[Identity] = field(default_factory=list)


def create_agent(actor: Actor, data: dict[str, Any]) -> Agent:
    """Create an agent from CreateAgentRequest fields plus the seed's keys.

    Raises InvalidArgument, NotFound (model, tool, block), Conflict (id or label taken).
    """
    model = choose_model(actor, data)
    tools = find_tools(actor, data, base=data.get("include_base_tools", True))
    attached = find_blocks(actor, data.get("block_ids") or [])
    folders = find_folders(actor, data) or []
    draft = draft_agent(actor, data, model, tools, attached)
    with discarded_on_failure([draft]), transaction.atomic():
        save_draft(draft)
    for block in attached:
        attach_block(draft.agent, block)
    agent = draft.agent
    for each in folders:
        agent = attach_folder(actor, agent, each)
    return agent


def draft_agent(
    actor: Actor,
    data: dict[str, Any],
    model: ModelInfo,
    tools: Sequence[Tool],
    attached: Sequence[Block] = (),
) -> AgentDraft:
    """Check the fields and build the folder; no rows. `attached` are blocks that come later, by `attach_block`.

    Raises InvalidArgument and Conflict.
    """
    people = find_identities(actor, data.get("identity_ids") or [])
    agent = _new_agent(actor, data, model)
    agent.tool_rules = with_default_rules(agent.tool_rules or [], list(tools))
    blocks = _new_blocks(actor, agent, data, {b.label for b in attached})
    files = {
        label_to_path(b.label, git_memory=False): render_block_file(memory.block_file(b))
        for b in blocks
    }
    folder = memory.provision(agent, files, SYSTEM_AUTHOR)
    draft = AgentDraft(agent, blocks, list(tools), data, folder, list(attached), people)
    with discarded_on_failure([draft]):
        repository = memory.open_repository()(folder, memory.commit_mode(agent))
        agent.memory_commit = repository.head() or ""
    return draft


def save_draft(draft: AgentDraft, *, has_row: bool = False) -> None:
    """Write the rows and put the folder in place; call it in a transaction, under `discarded_on_failure`.

    `has_row`: the agent's own row is there already and is replaced.
    """
    draft.agent.save(force_insert=not has_row, force_update=has_row)
    _save_relations(draft.agent, draft.blocks, draft.tools, draft.data)
    draft.agent.identities.set(draft.identities)
    write_agent_json(draft.agent, draft.folder)
    draft.folder.rename(memory.agent_dir(draft.agent))


@contextmanager
def discarded_on_failure(drafts: Sequence[AgentDraft]) -> Iterator[None]:
    """Remove the folders when the transaction inside fails. Raises Conflict for an id that is taken."""
    try:
        yield
    except BaseException as exc:
        for draft in drafts:
            shutil.rmtree(draft.folder, ignore_errors=True)
            if not Agent.objects.filter(pk=draft.agent.pk).exists():
                shutil.rmtree(memory.agent_dir(draft.agent), ignore_errors=True)
        if isinstance(exc, IntegrityError):
            taken = ", ".join(f"agent-{draft.agent.pk}" for draft in drafts)
            raise Conflict(f"An agent with id {taken} exists already.") from None
        raise


def _new_agent(actor: Actor, data: dict[str, Any], model: ModelInfo) -> Agent:
    agent = Agent(owner=actor.user, created_by=actor.user_id, last_updated_by=actor.user_id)
    if data.get("id"):
        agent.pk = ids.parse(ids.AGENT, data["id"])
        if Agent.objects.filter(pk=agent.pk).exists() or memory.agent_dir(agent).exists():
            raise Conflict(
                f"An agent with id agent-{agent.pk} exists already. Leave `id` out to get a new one."
            )
    for name in DIRECT:
        if data.get(name) is not None:
            setattr(agent, name, data[name])
    agent.name = data.get("name") or f"agent-{uuid.uuid4().hex[:8]}"
    agent.system = data.get("system") or DEFAULT_SYSTEM
    for name, value in {**model_fields(data, model, None), **seed_fields(data, None)}.items():
        setattr(agent, name, value)
    agent.config = {key: data[key] for key in CONFIG_KEYS if data.get(key) is not None}
    return agent


def _new_blocks(actor: Actor, agent: Agent, data: dict[str, Any], taken: set[str]) -> list[Block]:
    """Return the agent's own blocks: the given ones, then those of the Cloister that are missing (K23)."""
    given = list(data.get("memory_blocks") or [])
    if data.get("persona") is not None:
        given.append({"label": "persona", "value": data["persona"]})
    labels = set(taken)
    for item in given:
        if item["label"] in labels:
            raise InvalidArgument(
                f"Duplicate block label '{item['label']}': each label can be used once per agent."
            )
        labels.add(item["label"])
    given += [{"label": label, "value": ""} for label in CLOISTER_BLOCKS if label not in labels]
    return [new_block(actor, item, own=agent) for item in given]


def _save_relations(
    agent: Agent, blocks: list[Block], tools: list[Tool], data: dict[str, Any]
) -> None:
    Block.objects.bulk_create(blocks)
    AgentBlock.objects.bulk_create(
        AgentBlock(agent=agent, block=b, label=b.label, position=i, is_projected=True)
        for i, b in enumerate(blocks)
    )
    AgentTool.objects.bulk_create(
        AgentTool(agent=agent, tool=t, position=i) for i, t in enumerate(tools)
    )
    save_tags(agent, data.get("tags") or [])
    save_secrets(agent, data)
