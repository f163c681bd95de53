"""Groups and identities as Letta's clients read them (contract §9, §13)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from agents.models import Group, GroupAgent, Identity
from conversations.wire.states import ORGANIZATION_ID
from souveraine import ids

MANAGERS = {
    "round_robin": ("max_turns",),
    "supervisor": ("manager_agent_id",),
    "dynamic": ("manager_agent_id", "termination_token", "max_turns"),
    "sleeptime": ("manager_agent_id", "sleeptime_agent_frequency"),
    "voice_sleeptime": (
        "manager_agent_id",
        "max_message_buffer_length",
        "min_message_buffer_length",
    ),
    "swarm": (),
}


def manager_state(group: Group) -> dict[str, Any]:
    """Return the group's manager_config."""
    config = {**group.config, "manager_agent_id": ids.make(ids.AGENT, group.manager_agent_id)}
    names = MANAGERS[group.manager_type]
    return {"manager_type": group.manager_type, **{name: config.get(name) for name in names}}


def group_states(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return Group for each; two queries for all of them."""
    members: dict[Any, list[str]] = defaultdict(list)
    rows = GroupAgent.objects.filter(group__in=groups).order_by("position")
    for group_id, agent_id in rows.values_list("group_id", "agent_id"):
        members[group_id].append(f"agent-{agent_id}")
    shared: dict[Any, list[str]] = defaultdict(list)
    through = Group.shared_blocks.through.objects.filter(group__in=groups)
    for group_id, block_id in through.values_list("group_id", "block_id"):
        shared[group_id].append(f"block-{block_id}")
    return [_group_state(group, members[group.pk], shared[group.pk]) for group in groups]


def _group_state(group: Group, members: list[str], shared: list[str]) -> dict[str, Any]:
    config = group.config
    return {
        "id": ids.make(ids.GROUP, group.pk),
        "manager_type": group.manager_type,
        "agent_ids": members,
        "description": group.description,
        "project_id": group.project_id,
        "template_id": None,
        "base_template_id": None,
        "deployment_id": None,
        "shared_block_ids": shared,
        "manager_agent_id": ids.make(ids.AGENT, group.manager_agent_id),
        "termination_token": config.get("termination_token"),
        "max_turns": config.get("max_turns"),
        "sleeptime_agent_frequency": config.get("sleeptime_agent_frequency"),
        "turns_counter": None,
        "last_processed_message_id": None,
        "max_message_buffer_length": config.get("max_message_buffer_length"),
        "min_message_buffer_length": config.get("min_message_buffer_length"),
        "hidden": group.hidden,
    }


def identity_states(identities: Sequence[Identity]) -> list[dict[str, Any]]:
    """Return Identity for each; two queries for all of them."""
    agents: dict[Any, list[str]] = defaultdict(list)
    through: Any = Identity.agents.through.objects.filter(identity__in=identities)
    for identity_id, agent_id in through.values_list("identity_id", "agent_id"):
        agents[identity_id].append(f"agent-{agent_id}")
    blocks: dict[Any, list[str]] = defaultdict(list)
    through = Identity.blocks.through.objects.filter(identity__in=identities)
    for identity_id, block_id in through.values_list("identity_id", "block_id"):
        blocks[identity_id].append(f"block-{block_id}")
    return [_identity_state(one, agents[one.pk], blocks[one.pk]) for one in identities]


def _identity_state(identity: Identity, agents: list[str], blocks: list[str]) -> dict[str, Any]:
    return {
        "id": ids.make(ids.IDENTITY, identity.pk),
        "identifier_key": identity.identifier_key,
        "name": identity.name,
        "identity_type": identity.identity_type,
        "project_id": identity.project or None,
        "agent_ids": agents,
        "block_ids": blocks,
        "organization_id": ORGANIZATION_ID,
        "properties": identity.properties,
    }
