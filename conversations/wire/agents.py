"""Agents with their relationships: which are filled, and the few queries that fetch them for a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import F

from agents.actor import Actor
from agents.folder_selectors import open_files_of, view_limit_chars
from agents.models import (
    Agent,
    AgentFolder,
    AgentSecret,
    AgentTag,
    AgentTool,
    Block,
    Group,
    Identity,
    Tool,
)
from conversations.models import Conversation
from conversations.selectors import agent_message_ids, pending_messages
from conversations.wire.folders import file_block_state, folder_state
from conversations.wire.frames import approval_request
from conversations.wire.groups import group_states, identity_states
from conversations.wire.states import (
    RELATIONSHIPS,
    agent_state,
    conversation_counters,
    secret_state,
    tool_state,
)
from souveraine.lib.secrets import decrypt

ALL = frozenset(RELATIONSHIPS)
# Of a block: a page reads hundreds of them.
NOT_ON_THE_WIRE = ("owner", "created_at", "updated_at", "version", "rendered")


def wanted_relationships(
    meta: Mapping[str, Any], include: Sequence[str] | None, legacy: Sequence[str] | None
) -> frozenset[str]:
    """Return which relationships to fill (contract §1.1, §2).

    Named ones only, when some are named; none for the 1.x SDKs, everything for other callers.
    """
    named = [name.removeprefix("agent.") for name in (*(include or ()), *(legacy or ()))]
    if named:
        return frozenset(named) & ALL
    is_sdk = "HTTP_X_STAINLESS_PACKAGE_VERSION" in meta or meta.get(
        "HTTP_USER_AGENT", ""
    ).startswith("letta-client/")
    return frozenset() if is_sdk else ALL


def _blocks(agents: Sequence[Agent]) -> dict[Any, list[Block]]:
    """Return each agent's blocks in order, under its own labels: one query, one object for each."""
    found: dict[Any, list[Block]] = defaultdict(list)
    rows = (
        Block.objects.filter(agent_rows__agent__in=[agent.pk for agent in agents])
        .annotate(of_agent=F("agent_rows__agent_id"), label_there=F("agent_rows__label"))
        .defer(*NOT_ON_THE_WIRE)
        .order_by("agent_rows__position", "agent_rows__pk")
    )
    for block in rows:
        block.label = block.label_there
        found[block.of_agent].append(block)
    return found


def _tools(agents: Sequence[Agent]) -> dict[Any, list[dict[str, Any]]]:
    """Return the wire form of each agent's tools; a tool that many have is read and built once."""
    rows = AgentTool.objects.filter(agent__in=agents).order_by("position", "pk")
    pairs = list(rows.values_list("agent_id", "tool_id"))
    states = {t.pk: tool_state(t) for t in Tool.objects.filter(pk__in={tool for _, tool in pairs})}
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for agent_id, tool_id in pairs:
        found[agent_id].append(states[tool_id])
    return found


def _tags(agents: Sequence[Agent]) -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = defaultdict(list)
    rows = AgentTag.objects.filter(agent__in=agents).order_by("position")
    for agent_id, tag in rows.values_list("agent_id", "tag"):
        found[agent_id].append(tag)
    return found


def _secrets(actor: Actor, agents: Sequence[Agent]) -> dict[Any, list[dict[str, Any]]]:
    """Return secrets; their values only to a key with admin scope (architecture §11)."""
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    may_see = "admin" in actor.scopes
    for row in AgentSecret.objects.filter(agent__in=agents).order_by("key"):
        found[row.agent_id].append(
            secret_state(row, decrypt(row.value_encrypted) if may_see else "")
        )
    return found


def _folders(agents: Sequence[Agent]) -> dict[Any, list[dict[str, Any]]]:
    """Return the wire form of each agent's folders; no query when none has one."""
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    having = [agent.pk for agent in agents if agent.folder_count]
    if having:
        rows = AgentFolder.objects.filter(agent__in=having).select_related("folder__archive")
        for row in rows.order_by("pk"):
            found[row.agent_id].append(folder_state(row.folder))
    return found


def _file_blocks(agent: Agent) -> list[dict[str, Any]]:
    limit = view_limit_chars(agent)
    return [file_block_state(row, limit) for row in open_files_of(agent)]


def _pending(agents: Sequence[Agent]) -> dict[Any, dict[str, Any] | None]:
    """Return what waits for a client in each agent's default conversation."""
    waiting = Conversation.objects.filter(
        agent__in=agents, is_default=True, pending_message_id__isnull=False
    )
    found = pending_messages(waiting).values()
    return {message.agent_id: approval_request(message) for message in found}


def _identities(agents: Sequence[Agent]) -> dict[Any, list[dict[str, Any]]]:
    """Return the identities of each agent, the oldest first."""
    through: Any = Identity.agents.through.objects.filter(agent__in=agents)
    pairs = list(through.values_list("agent_id", "identity_id"))
    if not pairs:
        return {}
    wanted = Identity.objects.filter(pk__in={pk for _, pk in pairs})
    rows = list(wanted.order_by("created_at", "id"))
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row, state in zip(rows, identity_states(rows), strict=True):
        for agent_id, identity_id in pairs:
            if identity_id == row.pk:
                found[agent_id].append(state)
    return found


def _groups(agents: Sequence[Agent]) -> dict[Any, dict[str, Any]]:
    """Return the group that each agent manages, the newest when there are several."""
    rows = list(Group.objects.filter(manager_agent__in=agents).order_by("created_at", "id"))
    if not rows:
        return {}
    return {row.manager_agent_id: s for row, s in zip(rows, group_states(rows), strict=True)}


def _counters(agents: Sequence[Agent]) -> dict[Any, dict[str, Any]]:
    """Return the counters of each agent's conversation that was used last."""
    found: dict[Any, dict[str, Any]] = {}
    for agent in agents:
        newest = (
            Conversation.objects.filter(agent=agent, last_message_at__isnull=False)
            .order_by("-last_message_at")
            .first()
        )
        if newest is not None:
            found[agent.pk] = conversation_counters(newest)
    return found


def agent_states(
    actor: Actor,
    agents: Sequence[Agent],
    wanted: frozenset[str] = ALL,
    *,
    with_context: bool = False,
) -> list[dict[str, Any]]:
    """Return AgentState for each agent, in order, with the wanted relationships filled.

    `with_context` adds the default conversation's message ids and the counters, which a list leaves out.
    """
    blocks = _blocks(agents) if "blocks" in wanted else {}
    tools = _tools(agents) if "tools" in wanted else {}
    tags = _tags(agents)
    secrets = _secrets(actor, agents) if "secrets" in wanted else {}
    counters = _counters(agents) if with_context else {}
    pending = _pending(agents) if "pending_approval" in wanted else {}
    people = _identities(agents) if "identities" in wanted else {}
    groups = _groups(agents) if "managed_group" in wanted else {}
    folders = _folders(agents) if "sources" in wanted else {}
    states = []
    for agent in agents:
        state = agent_state(
            agent,
            blocks=blocks.get(agent.pk, []),
            tools=tools.get(agent.pk, []),
            tags=tags.get(agent.pk, []) if "tags" in wanted else [],
            secrets=secrets.get(agent.pk, []),
            message_ids=agent_message_ids(agent) if with_context else [],
            counters=counters.get(agent.pk, {}),
            pending_approval=pending.get(agent.pk),
            identities=people.get(agent.pk, []),
            group=groups.get(agent.pk),
            folders=folders.get(agent.pk, []),
            file_blocks=_file_blocks(agent) if with_context else [],
        )
        states.append(state)
    return states
