"""Reads of identities, groups and tags. Every one takes an actor; what the actor may not see does not exist."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from agents.actor import Actor
from agents.models import Agent, AgentTag, Block, Group, Identity
from agents.selectors import agents_of, blocks_of
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.errors import NotFound


def identities_of(actor: Actor) -> QuerySet[Identity]:
    """Return the identities that the actor may use."""
    return Identity.objects.filter(owner=actor.user)


def get_identity(actor: Actor, identity_id: uuid.UUID) -> Identity:
    """Return one identity. Raises NotFound."""
    found = identities_of(actor).filter(pk=identity_id).first()
    if found is None:
        raise NotFound(f"Identity with id '{ids.make(ids.IDENTITY, identity_id)}' not found")
    return found


def list_identities(
    actor: Actor,
    filters: dict[str, Any],
    *,
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Identity]:
    """Return one page; filters: name (part of it), identifier_key, identity_type, project_id."""
    queryset = identities_of(actor)
    for name, lookup in (
        ("name", "name__icontains"),
        ("identifier_key", "identifier_key"),
        ("identity_type", "identity_type"),
        ("project_id", "project"),
    ):
        if filters.get(name):
            queryset = queryset.filter(**{lookup: filters[name]})
    return page(
        queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_identity(actor, after) if after else None,
        before=get_identity(actor, before) if before else None,
    )


def groups_of(actor: Actor) -> QuerySet[Group]:
    """Return the groups that the actor may use."""
    return Group.objects.filter(owner=actor.user)


def get_group(actor: Actor, group_id: uuid.UUID) -> Group:
    """Return one group. Raises NotFound."""
    found = groups_of(actor).filter(pk=group_id).first()
    if found is None:
        raise NotFound(f"Group with id '{ids.make(ids.GROUP, group_id)}' not found")
    return found


def list_groups(
    actor: Actor,
    filters: dict[str, Any],
    *,
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Group]:
    """Return one page; filters: manager_type, project_id, and `agent`: groups that it manages or belongs to."""
    queryset = groups_of(actor).exclude(hidden=True)
    for name in ("manager_type", "project_id"):
        if filters.get(name):
            queryset = queryset.filter(**{name: filters[name]})
    agent = filters.get("agent")
    if agent is not None:
        managed = groups_of(actor).filter(manager_agent=agent).values("pk")
        joined = groups_of(actor).filter(agent_rows__agent=agent).values("pk")
        queryset = queryset.filter(pk__in=managed.union(joined, all=True))
    return page(
        queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_group(actor, after) if after else None,
        before=get_group(actor, before) if before else None,
    )


def named_agents(actor: Actor, texts: Sequence[str]) -> list[Agent]:
    """Return the agents of these ids, in order. Raises NotFound naming those that are not there."""
    wanted = [ids.parse(ids.AGENT, text) for text in texts]
    found = {agent.pk: agent for agent in agents_of(actor).filter(pk__in=wanted)}
    missing = [f"agent-{pk}" for pk in wanted if pk not in found]
    if missing:
        raise NotFound(f"Agents not found: {', '.join(missing[:20])}")
    return [found[pk] for pk in dict.fromkeys(wanted)]


def named_blocks(actor: Actor, texts: Sequence[str]) -> list[Block]:
    """Return the blocks of these ids, in order. Raises NotFound naming those that are not there."""
    wanted = [ids.parse(ids.BLOCK, text) for text in texts]
    found = {block.pk: block for block in blocks_of(actor).filter(pk__in=wanted)}
    missing = [f"block-{pk}" for pk in wanted if pk not in found]
    if missing:
        raise NotFound(f"Blocks not found: {', '.join(missing[:20])}")
    return [found[pk] for pk in dict.fromkeys(wanted)]


def list_tags(
    actor: Actor,
    *,
    ascending: bool,
    limit: int,
    after: str | None = None,
    before: str | None = None,
    containing: str | None = None,
) -> list[str]:
    """Return one page of the tags of the actor's agents, each once, by name; cursors are tags."""
    tags = AgentTag.objects.filter(agent__owner=actor.user)
    if containing:
        tags = tags.filter(tag__icontains=containing)
    if after is not None:
        tags = tags.filter(**{"tag__gt" if ascending else "tag__lt": after})
    if before is not None:
        tags = tags.filter(**{"tag__lt" if ascending else "tag__gt": before})
    is_reversed = before is not None and after is None
    order = "tag" if ascending != is_reversed else "-tag"
    found = list(tags.order_by(order).values_list("tag", flat=True).distinct()[:limit])
    return found[::-1] if is_reversed else found
