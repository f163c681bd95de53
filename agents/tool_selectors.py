"""Reads of tools: the list's filters and the search. One query each, whatever the number of tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet

from agents.actor import Actor
from agents.models import Agent, Tool
from agents.selectors import tools_of
from souveraine import ids
from souveraine.errors import NotFound

CUSTOM = "custom"
MAX_TERMS = 16
MAX_CANDIDATES = 1000
NAME_WEIGHT, TAG_WEIGHT, DESCRIPTION_WEIGHT = 3.0, 2.0, 1.0
RANK_CONSTANT = 60  # of reciprocal rank fusion, which the old server's scores come from
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class ToolFilter:
    """Which tools a list or a count is about; empty means all. `is_builtin` None is both kinds."""

    name: str | None = None
    names: Sequence[str] = ()
    tool_ids: Sequence[str] = ()
    search: str | None = None
    tool_types: Sequence[str] = ()
    exclude_tool_types: Sequence[str] = ()
    is_builtin: bool | None = None


@dataclass(frozen=True)
class Found:
    """A tool that a search found, best first from rank 1."""

    tool: Tool
    rank: int
    score: float = field(default=0.0)


def filter_tools(actor: Actor, wanted: ToolFilter) -> QuerySet[Tool]:
    """Return the tools that the actor may use and that fit. Raises MalformedId for an id of another kind."""
    found = tools_of(actor)
    if wanted.name:
        found = found.filter(name=wanted.name)
    if wanted.names:
        found = found.filter(name__in=wanted.names)
    if wanted.tool_ids:
        found = found.filter(pk__in=[ids.parse(ids.TOOL, text) for text in wanted.tool_ids])
    if wanted.search:
        found = found.filter(name__icontains=wanted.search)
    if wanted.tool_types:
        found = found.filter(tool_type__in=wanted.tool_types)
    if wanted.exclude_tool_types:
        found = found.exclude(tool_type__in=wanted.exclude_tool_types)
    if wanted.is_builtin is not None:
        found = found.filter(owner__isnull=wanted.is_builtin)
    return found


def search_tools(
    actor: Actor, query: str, *, tool_types: Sequence[str], tags: Sequence[str], limit: int
) -> list[Found]:
    """Return the tools whose name, tags or description hold words of the query; all without a query."""
    terms = list(dict.fromkeys(_WORD.findall(query.lower())))[:MAX_TERMS]
    rows = filter_tools(actor, ToolFilter(tool_types=tool_types))
    if terms:
        rows = rows.filter(
            reduce(
                or_,
                (
                    Q(name__icontains=term)
                    | Q(description__icontains=term)
                    | Q(tags__icontains=term)
                    for term in terms
                ),
            )
        )
    tools = [
        tool
        for tool in rows.order_by("-created_at", "-pk")[:MAX_CANDIDATES]
        if not tags or set(tags) & set(tool.tags)
    ]
    tools.sort(key=lambda tool: -_weight(tool, terms))
    return [
        Found(tool, rank, 1 / (RANK_CONSTANT + rank))
        for rank, tool in enumerate(tools[:limit], start=1)
    ]


def _weight(tool: Tool, terms: list[str]) -> float:
    name, description = tool.name.lower(), tool.description.lower()
    tags = " ".join(str(tag) for tag in tool.tags).lower()
    return sum(
        NAME_WEIGHT * (term in name)
        + TAG_WEIGHT * (term in tags)
        + DESCRIPTION_WEIGHT * (term in description)
        for term in terms
    )


def tools_of_agent(agent: Agent) -> QuerySet[Tool]:
    """Return the tools that are attached to the agent."""
    return Tool.objects.filter(agent_rows__agent=agent)


def attached_tool(agent: Agent, name: str) -> Tool:
    """Return the agent's tool of that name. Raises NotFound, which names those that it has."""
    tools: dict[str, Any] = {tool.name: tool for tool in tools_of_agent(agent)}
    if name not in tools:
        raise NotFound(
            f"Tool '{name}' is not attached to agent agent-{agent.pk}. Attached are: {sorted(tools)}."
        )
    return tools[name]  # type: ignore[no-any-return]
