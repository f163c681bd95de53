"""Import an agent file: `plan_import` asks what is here and what would happen, `carry_out` does it, all or nothing.

Everything slow (reading, building folders and rows, many messages) is done before the one transaction, in
which all of it appears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from agents.actor import Actor
from agents.models import Agent, Archive, Block, Tool
from agents.provider_selectors import get_model
from agents.providers import registry
from agents.providers.base import ModelInfo
from agents.selectors import agents_of, tools_of
from agents.services import memory
from agents.services.agents import choose_model
from agents.services.blocks import new_block
from agents.services.creation import AgentDraft, discarded_on_failure, draft_agent, save_draft
from agents.services.groups import group_from_file
from agents.services.imported_archives import embed_later, put_passages
from agents.services.tools import imported_tool
from agents.tools.registry import find
from conversations.agent_files.reading import AgentFile, FileAgent, FileTool
from conversations.agent_files.staging import staged
from conversations.models import Conversation, Message
from conversations.services import mirror
from conversations.services.prompt import ensure_system_message
from memfs import API_AUTHOR
from souveraine import ids
from souveraine.errors import NotFound, SouveraineError

COPY_SUFFIX = "_copy"
NAME_CHARS = 255
BATCH = 500


@dataclass(frozen=True)
class ImportOptions:
    """What the form of the request says beside the file."""

    name: str | None = None
    model: str | None = None
    embedding: str | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    append_copy_suffix: bool = True
    override_existing_tools: bool = True


@dataclass
class Plan:
    """What an import would do. `tools` are rows by the file's ids: found, to be changed, or new."""

    file: AgentFile
    options: ImportOptions
    models: list[ModelInfo]
    names: list[str]
    tools: dict[str, Tool]
    written_tools: list[Tool]
    missing_tools: list[str]
    missing_models: list[str]
    clashes: list[str]


def plan_import(actor: Actor, file: AgentFile, options: ImportOptions) -> Plan:
    """Return what would happen; writes nothing. Raises InvalidArgument and NotFound (the model asked for)."""
    names = [_name(agent, number, options) for number, agent in enumerate(file.agents)]
    taken = set(agents_of(actor).filter(name__in=names).values_list("name", flat=True))
    missing_models: list[str] = []
    models = [_model(actor, agent, options, missing_models) for agent in file.agents]
    plan = Plan(
        file=file,
        options=options,
        models=models,
        names=names,
        tools={},
        written_tools=[],
        missing_tools=[],
        missing_models=list(dict.fromkeys(missing_models)),
        clashes=sorted(taken),
    )
    _find_tools(actor, plan)
    return plan


def _name(agent: FileAgent, number: int, options: ImportOptions) -> str:
    if options.name and number == 0:
        return options.name
    suffix = COPY_SUFFIX if options.append_copy_suffix else ""
    name = agent.data.get("name") or "agent"
    return f"{name[: NAME_CHARS - len(suffix)]}{suffix}"


def _model(actor: Actor, agent: FileAgent, options: ImportOptions, missing: list[str]) -> ModelInfo:
    """Return the model asked for, else the file's, else the default one, when the file's is not here."""
    if options.model:
        return get_model(actor, options.model)
    try:
        return choose_model(actor, agent.data)
    except SouveraineError as exc:
        if exc.http_status >= 500:
            raise
        default = registry.default_model()
        if default is None:
            raise NotFound(
                f"{exc.message} And there is no default model to take instead: name one in `model`."
            ) from None
        llm = agent.data.get("llm_config") or {}
        named = agent.data.get("model") or llm.get("handle") or llm.get("model") or "?"
        missing.append(str(named)[:NAME_CHARS])
        return default


def _find_tools(actor: Actor, plan: Plan) -> None:
    """Find each tool of the file by name, or prepare it from what the file says."""
    wanted = {pk for agent in plan.file.agents for pk in agent.tools}
    tools = {pk: plan.file.tools[pk] for pk in wanted}
    rows = tools_of(actor).filter(name__in={tool.name for tool in tools.values()})
    here = {row.name: row for row in rows.order_by("owner")}
    for pk, tool in sorted(tools.items()):
        row = _tool_row(actor, tool, here.get(tool.name), plan)
        if row is None:
            plan.missing_tools.append(tool.name)
        else:
            here[tool.name] = plan.tools[pk] = row


def _tool_row(actor: Actor, tool: FileTool, known: Tool | None, plan: Plan) -> Tool | None:
    is_builtin = find(tool.name) is not None
    if (
        is_builtin
        or tool.tool_type != "custom"
        or (known and not plan.options.override_existing_tools)
    ):
        if is_builtin and tool.tool_type == "custom":
            plan.file.notices.append(f"Tool '{tool.name}' is a built-in tool here, which is taken.")
        return known
    if known in plan.written_tools:
        return known
    row = imported_tool(actor, known, tool.model_dump())
    if row is None:
        return known
    plan.written_tools.append(row)
    return row


def report(plan: Plan) -> dict[str, Any]:
    """Return the dry run's answer: what would be created, what is missing, what clashes, what is left out."""
    agents = []
    for agent, name, model in zip(plan.file.agents, plan.names, plan.models, strict=True):
        blocks = [block["label"] for block in agent.data["memory_blocks"]]
        blocks += [plan.file.blocks[pk]["label"] for pk in agent.shared_blocks]
        agents.append(
            {
                "file_id": agent.file_id,
                "name": name,
                "model": model.handle,
                "blocks": blocks,
                "tools": [plan.tools[pk].name for pk in agent.tools if pk in plan.tools],
                "num_messages": len(agent.history.rows),
                "num_passages": len(agent.passages),
            }
        )
    return {
        "agent_ids": [],
        "dry_run": True,
        "agents": agents,
        "groups": len(plan.file.groups),
        "missing_tools": sorted(set(plan.missing_tools)),
        "missing_models": plan.missing_models,
        "name_clashes": plan.clashes,
        "changed_tools": sorted(tool.name for tool in plan.written_tools if not tool._state.adding),
        "new_tools": sorted(tool.name for tool in plan.written_tools if tool._state.adding),
        "notices": notices(plan),
    }


def notices(plan: Plan) -> list[str]:
    """Return what the importer should know: each thing that is not as in the file."""
    found = [
        f"The model {handle} is not here, so the default model is taken."
        for handle in plan.missing_models
    ]
    found += [
        f"The tool '{name}' is not here and cannot be taken from the file; attach it later."
        for name in sorted(set(plan.missing_tools))
    ]
    return found + plan.file.notices


def carry_out(actor: Actor, plan: Plan) -> list[Agent]:
    """Create everything in one transaction; returns the agents in the file's order.

    A crash leaves nothing but unused folders and what `staging` removes later. Raises what the creation of
    agents, blocks and tools raises.
    """
    shared = {
        pk: new_block(actor, plan.file.blocks[pk])
        for pk in {pk for agent in plan.file.agents for pk in agent.shared_blocks}
    }
    drafts: list[AgentDraft] = []
    with discarded_on_failure(drafts):
        for agent, name, model in zip(plan.file.agents, plan.names, plan.models, strict=True):
            blocks = [shared[pk] for pk in agent.shared_blocks]
            drafts.append(_draft(actor, plan, agent, name, model, blocks))
        conversations = [_conversation(actor, draft.agent) for draft in drafts]
        for conversation, agent in zip(conversations, plan.file.agents, strict=True):
            _place(conversation, agent)
        rows = [agent.history.rows for agent in plan.file.agents]
        with (
            staged([draft.agent for draft in drafts], conversations, rows) as is_staged,
            transaction.atomic(),
        ):
            archives = _save(actor, plan, shared, drafts, conversations, is_staged=is_staged)
    _write_files(drafts, conversations)
    for made, archive in archives:
        embed_later(actor, made, archive)
    return [draft.agent for draft in drafts]


def _draft(
    actor: Actor,
    plan: Plan,
    agent: FileAgent,
    name: str,
    model: ModelInfo,
    attached: list[Block],
) -> AgentDraft:
    data = {**agent.data, "name": name}
    options = plan.options
    if options.secrets:
        data["secrets"] = {**data["secrets"], **options.secrets}
    if options.embedding:
        data["embedding"] = options.embedding
    llm = data.get("llm_config") or {}
    window = data.get("context_window_limit") or llm.get("context_window")
    data["context_window_limit"] = min(window, model.context_window) if window else None
    if model.handle not in (data.get("model"), llm.get("handle")):
        data["llm_config"] = None
    if any(_manages(group, agent.file_id) for group in plan.file.groups):
        data["enable_sleeptime"] = True
    tools = [plan.tools[pk] for pk in dict.fromkeys(agent.tools) if pk in plan.tools]
    return draft_agent(actor, data, model, list(dict.fromkeys(tools)), attached)


def _manages(group: dict[str, Any], file_id: str) -> bool:
    """Tell whether the agent has a sleeptime agent in this group: here its background life does that work."""
    manager = group.get("manager_config")
    manager = manager if isinstance(manager, dict) else group
    kinds = ("sleeptime", "voice_sleeptime")
    return manager.get("manager_type") in kinds and manager.get("manager_agent_id") == file_id


def _conversation(actor: Actor, agent: Agent) -> Conversation:
    return Conversation(
        agent=agent, is_default=True, created_by=actor.user_id, last_updated_by=actor.user_id
    )


def _place(conversation: Conversation, agent: FileAgent) -> None:
    """Put the file's messages into the conversation, with its counters."""
    history = agent.history
    for row in history.rows:
        row.conversation, row.agent_id = conversation, conversation.agent_id
    texts = [row for row in history.rows if row.text]
    said = (Message.Role.USER, Message.Role.ASSISTANT)
    conversation.last_sequence = history.rows[-1].sequence if history.rows else 0
    conversation.window_start = history.window_start
    conversation.message_count = sum(row.role in said for row in texts)
    conversation.turn_count = sum(row.role == Message.Role.USER for row in texts)
    if history.rows:
        conversation.last_message_at = history.rows[-1].created_at


def _save(
    actor: Actor,
    plan: Plan,
    shared: dict[str, Block],
    drafts: Sequence[AgentDraft],
    conversations: Sequence[Conversation],
    *,
    is_staged: bool,
) -> list[tuple[Agent, Archive]]:
    """Write everything; returns the archives that were made. Call it in the transaction."""
    archives: list[tuple[Agent, Archive]] = []
    for tool in plan.written_tools:
        tool.save()
    Block.objects.bulk_create(shared.values())
    for block in shared.values():
        memory.note_rendering(block)
    for draft, conversation in zip(drafts, conversations, strict=True):
        save_draft(draft, has_row=is_staged)
        for block in draft.attached:
            memory.attach_row(draft.agent, block)
        conversation.save(force_insert=not is_staged, force_update=is_staged)
        ensure_system_message(conversation)
    agents = {
        agent.file_id: draft.agent for agent, draft in zip(plan.file.agents, drafts, strict=True)
    }
    for draft, agent in zip(drafts, plan.file.agents, strict=True):
        if (archive := put_passages(actor, draft.agent, agent.passages)) is not None:
            archives.append((draft.agent, archive))
    for group in plan.file.groups:
        plan.file.notices += group_from_file(actor, group, agents, shared)
    if not is_staged:
        for agent in plan.file.agents:
            Message.objects.bulk_create(agent.history.rows, batch_size=BATCH)
    return archives


def _write_files(drafts: Sequence[AgentDraft], conversations: Sequence[Conversation]) -> None:
    """Write what are copies of the rows; after a crash the next turn of the agent writes them."""
    for draft, conversation in zip(drafts, conversations, strict=True):
        for block in draft.attached:
            memory.project_block(draft.agent, block, API_AUTHOR)
        if draft.attached:
            memory.sync_blocks(draft.agent)
        mirror.write_metadata(conversation)
        while mirror.append_messages(conversation):
            pass


def agent_ids(agents: Sequence[Agent]) -> list[str]:
    """Return the ids on the wire."""
    return [str(ids.make(ids.AGENT, agent.pk)) for agent in agents]
