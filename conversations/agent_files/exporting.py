"""Write agents as an agent file: ids become `agent-0`, `block-0` …, in the old server's shape and key order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.utils import timezone

from agents.archive_selectors import archives_of_agent, passages_in
from agents.models import Agent, AgentSecret, Block, Group, Tool
from agents.selectors import agent_tags, attached_blocks, attached_tools
from agents.services.memory import take_up_edits
from conversations.agent_files.messages import message_entity
from conversations.lineage import shown_in
from conversations.models import Conversation, Message
from conversations.selectors import in_context_ids
from conversations.wire.groups import manager_state
from conversations.wire.states import SETTINGS_ORDER, in_order, llm_config_state
from souveraine import __version__, ids

Entity = dict[str, Any]
NOT_OF_TOOLS = ("created_by_id", "last_updated_by_id")


class Numbers:
    """Ids of the file by ids here: `agent-0`, `agent-1` … in the order of their first mention."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], str] = {}
        self._counts: dict[str, int] = {}

    def of(self, prefix: str, key: Any) -> str:
        """Return the file's id, a new one at the first mention."""
        if (prefix, key) not in self._known:
            number = self._counts.get(prefix, 0)
            self._counts[prefix] = number + 1
            self._known[prefix, key] = f"{prefix}-{number}"
        return self._known[prefix, key]


def export_agent(
    agent: Agent,
    conversation: Conversation | None,
    *,
    scrub_messages: bool = False,
    skills: Sequence[Entity] = (),
    tool_state: Callable[[Tool], Entity],
) -> Entity:
    """Return the agent file: the agent, what it has, and the members of groups that it manages.

    `conversation` is the one whose messages go with the agent; members bring their default ones. Values of
    secrets never go into a file: their names do, with empty values.
    """
    groups = list(Group.objects.filter(manager_agent=agent).order_by("created_at", "id"))
    members = Agent.objects.filter(group_rows__group__in=groups).exclude(pk=agent.pk)
    agents = [agent, *members.order_by("group_rows__group", "group_rows__position").distinct()]
    agents = list(dict.fromkeys(agents))
    numbers, blocks, tools = Numbers(), dict[Any, Block](), dict[Any, Tool]()
    entities = []
    for one in agents:
        said = conversation if one is agent else _default(one)
        own_blocks, own_tools = attached_blocks(take_up_edits(one)), attached_tools(one)
        blocks |= {block.pk: block for block in own_blocks}
        tools |= {tool.pk: tool for tool in own_tools}
        history = _history(one, None if scrub_messages else said, numbers)
        managed = [group for group in groups if one is agent]
        entities.append(_agent(one, own_blocks, own_tools, history, managed, numbers))
    return {
        "agents": entities,
        "groups": [_group(group, agents, numbers) for group in groups],
        "blocks": [_block(block, numbers) for block in blocks.values()],
        "files": [],
        "sources": [],
        "tools": [_tool(tool_state(tool), tool, numbers) for tool in tools.values()],
        "mcp_servers": [],
        "skills": list(skills),
        "metadata": {"exported_by": f"souveraine {__version__}"},
        "created_at": timezone.now().isoformat(),
    }


def _default(agent: Agent) -> Conversation | None:
    return Conversation.objects.filter(agent=agent, is_default=True).first()


def _history(agent: Agent, conversation: Conversation | None, numbers: Numbers) -> Entity:
    if conversation is None:
        return {"in_context_message_ids": [], "messages": []}
    agent_id = numbers.of("agent", agent.pk)
    rows = Message.objects.filter(shown_in(conversation)).order_by("sequence")
    messages = [
        message_entity(row, numbers.of("message", str(row.id)), agent_id)
        for row in rows.iterator(chunk_size=2000)
    ]
    in_context = [text.removeprefix("message-") for text in in_context_ids(conversation)]
    return {
        "in_context_message_ids": [numbers.of("message", pk) for pk in in_context],
        "messages": messages,
    }


def _agent(
    agent: Agent,
    blocks: Sequence[Block],
    tools: Sequence[Tool],
    history: Entity,
    groups: Sequence[Group],
    numbers: Numbers,
) -> Entity:
    config = agent.config
    secrets = AgentSecret.objects.filter(agent=agent).order_by("key")
    return {
        "name": agent.name,
        "memory_blocks": [],
        "tools": [],
        "tool_ids": [numbers.of("tool", tool.pk) for tool in tools],
        "source_ids": [],
        "folder_ids": None,
        "block_ids": [numbers.of("block", block.pk) for block in blocks],
        "tool_rules": agent.tool_rules,
        "tags": agent_tags(agent),
        "system": agent.system,
        "agent_type": agent.agent_type,
        "initial_message_sequence": None,
        "include_base_tools": False,
        "include_multi_agent_tools": False,
        "include_base_tool_rules": False,
        "include_default_source": False,
        "description": agent.description,
        "metadata": agent.metadata,
        "llm_config": llm_config_state(agent),
        "embedding_config": agent.embedding_config,
        "model": None,
        "embedding": agent.embedding,
        "model_settings": in_order(agent.model_settings, SETTINGS_ORDER),
        "compaction_settings": agent.compaction_settings,
        **_unused(),
        "tool_exec_environment_variables": dict.fromkeys(secrets.values_list("key", flat=True), ""),
        "secrets": None,
        "memory_variables": None,
        "project_id": None,
        "template_id": None,
        "base_template_id": None,
        "identity_ids": None,
        "message_buffer_autoclear": bool(config.get("message_buffer_autoclear", False)),
        "enable_sleeptime": False,
        "response_format": config.get("response_format"),
        "timezone": config.get("timezone") or "UTC",
        "max_files_open": config.get("max_files_open") or 10,
        "per_file_view_window_char_limit": config.get("per_file_view_window_char_limit") or 25_000,
        "hidden": agent.hidden,
        "parallel_tool_calls": None,
        "id": numbers.of("agent", agent.pk),
        **history,
        "files_agents": [],
        "group_ids": [numbers.of("group", group.pk) for group in groups],
        "passages": _passages(agent),
        "_souveraine": agent.souveraine,
        "memory": {"git_enabled": agent.git_enabled, "auto_commit": agent.auto_commit},
    }


def _passages(agent: Agent) -> list[Entity]:
    """Return the agent's archival memory, which the old server's files do not have; parts of files stay here."""
    rows = passages_in(archives_of_agent(agent)).filter(file__isnull=True)
    return [
        {
            "text": row.text,
            "tags": row.tags,
            "metadata": row.metadata,
            "created_at": row.created_at.isoformat(),
        }
        for row in rows.order_by("created_at", "row").iterator(chunk_size=2000)
    ]


def _unused() -> Entity:
    """Return CreateAgent fields that say nothing about an agent that exists."""
    names = ("context_window_limit", "embedding_chunk_size", "max_tokens", "max_reasoning_tokens")
    later = ("reasoning", "from_template")
    return {
        **dict.fromkeys(names),
        "enable_reasoner": False,
        **dict.fromkeys(later),
        "template": False,
        "project": None,
    }


def _block(block: Block, numbers: Numbers) -> Entity:
    given = block.config
    return {
        "value": block.value,
        "limit": block.limit,
        "project_id": None,
        "template_name": given.get("template_name"),
        "is_template": bool(given.get("is_template", False)),
        "template_id": None,
        "base_template_id": None,
        "deployment_id": None,
        "entity_id": None,
        "preserve_on_migration": bool(given.get("preserve_on_migration", False)),
        "label": block.label,
        "read_only": block.read_only,
        "description": block.description,
        "metadata": block.metadata,
        "hidden": block.hidden,
        "tags": block.tags or None,
        "id": numbers.of("block", block.pk),
    }


def _tool(state: Entity, tool: Tool, numbers: Numbers) -> Entity:
    return {
        **state,
        **dict.fromkeys(NOT_OF_TOOLS),
        "id": numbers.of("tool", tool.pk),
    }


def _group(group: Group, agents: Sequence[Agent], numbers: Numbers) -> Entity:
    ordered = list(group.agent_rows.values_list("agent_id", flat=True))
    there = {agent.pk for agent in agents}
    manager = manager_state(group)
    if group.manager_agent_id is not None:
        manager["manager_agent_id"] = numbers.of("agent", group.manager_agent_id)
    return {
        "id": numbers.of("group", group.pk),
        "agent_ids": [numbers.of("agent", pk) for pk in ordered if pk in there],
        "description": group.description,
        "manager_config": manager,
        "project_id": None,
        "shared_block_ids": [
            numbers.of("block", pk) for pk in group.shared_blocks.values_list("pk", flat=True)
        ],
        "hidden": group.hidden,
    }


def file_name(agent: Agent) -> str:
    """Return a name for the file that every system can keep."""
    kept = "".join(char if char.isalnum() and char.isascii() else "-" for char in agent.name)
    return f"{kept.strip('-')[:80] or ids.make(ids.AGENT, agent.pk)}.af"
