"""Groups: written by imports and by the API. They are kept as records; turns of one agent do not start others'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from agents.actor import Actor
from agents.models import Agent, Block, Group, GroupAgent
from souveraine.lib.rows import save_present

MANAGER_TYPES = ("round_robin", "supervisor", "dynamic", "sleeptime", "voice_sleeptime", "swarm")
MANAGER_FIELDS = (
    "termination_token",
    "max_turns",
    "sleeptime_agent_frequency",
    "max_message_buffer_length",
    "min_message_buffer_length",
)


@transaction.atomic
def create_group(
    actor: Actor,
    agents: Sequence[Agent],
    *,
    description: str,
    manager: Mapping[str, Any],
    manager_agent: Agent | None = None,
    shared_blocks: Sequence[Block] = (),
    project_id: str | None = None,
    hidden: bool | None = None,
) -> Group:
    """Create a group. `manager` has `manager_type` and the fields of that type by their wire names."""
    group = Group.objects.create(
        owner=actor.user,
        description=description,
        manager_type=manager["manager_type"],
        manager_agent=manager_agent,
        config={key: manager[key] for key in MANAGER_FIELDS if manager.get(key) is not None},
        project_id=project_id,
        hidden=hidden,
    )
    set_agents(group, agents)
    group.shared_blocks.set(shared_blocks)
    return group


def set_agents(group: Group, agents: Sequence[Agent]) -> None:
    """Replace the members; each is one once."""
    GroupAgent.objects.filter(group=group).delete()
    GroupAgent.objects.bulk_create(
        GroupAgent(group=group, agent=agent, position=position)
        for position, agent in enumerate(dict.fromkeys(agents))
    )


def group_from_file(
    actor: Actor,
    entity: Mapping[str, Any],
    agents: Mapping[str, Agent],
    blocks: Mapping[str, Block],
) -> list[str]:
    """Create a group of an agent file, by the file's ids; returns notices for what cannot be taken."""
    config = entity.get("manager_config")
    manager = dict(config) if isinstance(config, dict) else dict(entity)
    if manager.get("manager_type") not in MANAGER_TYPES:
        return ["A group of an unknown type is left out."]
    given = entity.get("agent_ids")
    listed = [pk for pk in given if isinstance(pk, str)] if isinstance(given, list) else []
    members = [agents[pk] for pk in listed if pk in agents]
    chief = manager.get("manager_agent_id")
    shared = entity.get("shared_block_ids")
    ints = [key for key in MANAGER_FIELDS if key != "termination_token"]
    for key in ints:
        if type(manager.get(key)) is not int:
            manager.pop(key, None)
    if not isinstance(manager.get("termination_token"), str):
        manager.pop("termination_token", None)
    create_group(
        actor,
        members,
        description=str(entity.get("description") or ""),
        manager=manager,
        manager_agent=agents.get(chief) if isinstance(chief, str) else None,
        shared_blocks=[blocks[pk] for pk in shared if isinstance(pk, str) and pk in blocks]
        if isinstance(shared, list)
        else (),
    )
    missing = len(listed) - len(members)
    return [f"A group has {missing} agents that are not in the file."] if missing else []


@transaction.atomic
def update_group(
    group: Group,
    data: Mapping[str, Any],
    *,
    manager: Mapping[str, Any] | None = None,
    manager_agent: Agent | None = None,
    agents: Sequence[Agent] | None = None,
    shared_blocks: Sequence[Block] | None = None,
) -> Group:
    """Change what is given; lists replace, and so does a manager."""
    for name in ("description", "project_id"):
        if name in data and (data[name] is not None or name == "project_id"):
            setattr(group, name, data[name])
    if manager is not None:
        group.manager_type, group.manager_agent = manager["manager_type"], manager_agent
        group.config = {k: manager[k] for k in MANAGER_FIELDS if manager.get(k) is not None}
    save_present(group)
    if agents is not None:
        set_agents(group, agents)
    if shared_blocks is not None:
        group.shared_blocks.set(shared_blocks)
    return group


def delete_group(group: Group) -> None:
    """Delete a group; its agents and blocks stay."""
    Group.objects.filter(pk=group.pk).delete()
