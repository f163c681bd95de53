"""Reads of what `agents` owns. Every one takes an actor; what the actor may not see does not exist."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from agents.actor import Actor
from agents.models import Agent, AgentBlock, Block, Identity, RememberedDecision, Tool
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.errors import NotFound
from souveraine.lib.tags import with_tags

T = TypeVar("T", Agent, Block)


def agents_of(actor: Actor) -> QuerySet[Agent]:
    """Return the agents that the actor may use."""
    return Agent.objects.filter(owner=actor.user)


def get_agent(actor: Actor, agent_id: uuid.UUID) -> Agent:
    """Return one agent. Raises NotFound, also for a stranger's."""
    agent = agents_of(actor).filter(pk=agent_id).first()
    if agent is None:
        raise NotFound(f"Agent with ID {ids.make(ids.AGENT, agent_id)} not found")
    return agent


def filter_agents(actor: Actor, filters: dict[str, Any]) -> QuerySet[Agent]:
    """Apply Letta's list filters: name, tags (+ match_all_tags), query_text, last_stop_reason, created_by_id."""
    queryset = agents_of(actor).exclude(hidden=True)
    if filters.get("name") is not None:
        queryset = queryset.filter(name=filters["name"])
    if filters.get("query_text"):
        queryset = queryset.filter(name__icontains=filters["query_text"])
    if filters.get("last_stop_reason"):
        queryset = queryset.filter(last_stop_reason=filters["last_stop_reason"])
    if filters.get("created_by_id"):
        queryset = queryset.filter(created_by=ids.parse(ids.USER, filters["created_by_id"]))
    tags = filters.get("tags") or []
    if tags and filters.get("match_all_tags"):
        wanted = set(tags)
        queryset = queryset.annotate(
            matched_tags=Count("tag_rows", filter=Q(tag_rows__tag__in=wanted), distinct=True)
        ).filter(matched_tags=len(wanted))
    elif tags:
        queryset = queryset.filter(pk__in=Agent.objects.filter(tag_rows__tag__in=tags).values("pk"))
    queryset = with_identities(queryset, filters)
    for unused in ("project_id", "template_id", "base_template_id"):
        if filters.get(unused):
            queryset = queryset.filter(**{f"config__{unused}": filters[unused]})
    return queryset


def with_identities(queryset: QuerySet[T], filters: dict[str, Any]) -> QuerySet[T]:
    """Apply the filters identity_id and identifier_keys to agents or blocks."""
    if filters.get("identity_id"):
        known = Identity.objects.filter(pk=ids.parse(ids.IDENTITY, filters["identity_id"]))
        queryset = queryset.filter(identities__in=known)
    if filters.get("identifier_keys"):
        known = Identity.objects.filter(identifier_key__in=filters["identifier_keys"])
        through = queryset.model._default_manager.filter(identities__in=known).values("pk")
        queryset = queryset.filter(pk__in=through)
    return queryset


def list_agents(
    actor: Actor,
    filters: dict[str, Any],
    *,
    order_by: Literal["created_at", "updated_at", "last_run_completion"],
    ascending: bool,
    limit: int,
    offset: int = 0,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Agent]:
    """Return one page of agents. Reads no agent file. Raises NotFound for an unknown cursor."""
    return page(
        filter_agents(actor, filters),
        field=order_by,
        ascending=ascending,
        limit=limit,
        offset=offset,
        after=get_agent(actor, after) if after else None,
        before=get_agent(actor, before) if before else None,
    )


def blocks_of(actor: Actor) -> QuerySet[Block]:
    """Return the blocks that the actor may use."""
    return Block.objects.filter(owner=actor.user)


def get_block(actor: Actor, block_id: uuid.UUID) -> Block:
    """Return one block. Raises NotFound."""
    block = blocks_of(actor).filter(pk=block_id).first()
    if block is None:
        raise NotFound(f"Block with id '{ids.make(ids.BLOCK, block_id)}' not found")
    return block


def list_blocks(
    actor: Actor,
    filters: dict[str, Any],
    *,
    ascending: bool,
    limit: int,
    offset: int = 0,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Block]:
    """Return one page of blocks; filters as in `filter_blocks`."""
    return page(
        filter_blocks(actor, filters),
        field="created_at",
        ascending=ascending,
        limit=limit,
        offset=offset,
        after=get_block(actor, after) if after else None,
        before=get_block(actor, before) if before else None,
    )


def filter_blocks(actor: Actor, filters: dict[str, Any]) -> QuerySet[Block]:
    """Apply Letta's filters: label, name (of a template), templates_only, project_id, tags (+ match_all_tags),
    the *_search ones, connected_to_agents_count_gt, _lt, _eq, identity_id and identifier_keys.
    """
    queryset = with_identities(blocks_of(actor).exclude(hidden=True), filters)
    if filters.get("label"):
        queryset = queryset.filter(label=filters["label"])
    for name in ("label", "value", "description"):
        if filters.get(f"{name}_search"):
            queryset = queryset.filter(**{f"{name}__icontains": filters[f"{name}_search"]})
    for name, key in (("name", "template_name"), ("project_id", "project_id")):
        if filters.get(name):
            queryset = queryset.filter(**{f"config__{key}": filters[name]})
    if filters.get("templates_only"):
        queryset = queryset.filter(config__is_template=True)
    if filters.get("tags"):
        queryset = with_tags(queryset, filters["tags"], match_all=bool(filters["match_all_tags"]))
    return _with_agent_counts(queryset, filters)


def _with_agent_counts(queryset: QuerySet[Block], filters: dict[str, Any]) -> QuerySet[Block]:
    wanted = {
        lookup: filters[f"connected_to_agents_count_{name}"]
        for name, lookup in (("gt", "gt"), ("lt", "lt"), ("eq", "in"))
        if filters.get(f"connected_to_agents_count_{name}") is not None
    }
    if not wanted:
        return queryset
    rows = AgentBlock.objects.filter(block=OuterRef("pk")).order_by()
    counted = rows.values("block").annotate(count=Count("pk")).values("count")
    queryset = queryset.alias(agent_count=Coalesce(Subquery(counted), 0))
    return queryset.filter(**{f"agent_count__{lookup}": value for lookup, value in wanted.items()})


def attached_blocks(agent: Agent) -> list[Block]:
    """Return the agent's blocks in their order, each with `attached_label`."""
    rows = AgentBlock.objects.filter(agent=agent).select_related("block").order_by("position", "pk")
    blocks = []
    for row in rows:
        row.block.label = row.label
        blocks.append(row.block)
    return blocks


def isolated_copies(isolated: Mapping[str, str]) -> dict[str, Block]:
    """Return {label: block} for a conversation's {label: block id}; one query. Deleted copies are left out."""
    found = {str(block.pk): block for block in Block.objects.filter(pk__in=isolated.values())}
    copies = {}
    for label, block_id in isolated.items():
        if block_id in found:
            copies[label] = found[block_id]
            copies[label].label = label
    return copies


def attached_tools(agent: Agent) -> list[Tool]:
    """Return the agent's tools in the order in which the model is offered them."""
    return list(
        Tool.objects.filter(agent_rows__agent=agent).order_by(
            "agent_rows__position", "agent_rows__pk"
        )
    )


def tools_of(actor: Actor) -> QuerySet[Tool]:
    """Return the tools that the actor may use: built-in ones and own ones."""
    return Tool.objects.filter(Q(owner__isnull=True) | Q(owner=actor.user))


def get_tool(actor: Actor, tool_id: uuid.UUID) -> Tool:
    """Return one tool. Raises NotFound."""
    tool = tools_of(actor).filter(pk=tool_id).first()
    if tool is None:
        raise NotFound(f"Tool with id {ids.make(ids.TOOL, tool_id)} not found")
    return tool


def agent_tags(agent: Agent) -> list[str]:
    """Return the tags in the order given (uses a prefetch when there is one)."""
    return [row.tag for row in sorted(agent.tag_rows.all(), key=lambda row: row.position)]


def remembered_decisions(agent: Agent) -> list[RememberedDecision]:
    """Return what was decided for good about the agent's tools, oldest first."""
    return list(RememberedDecision.objects.filter(agent=agent)[:1000])
