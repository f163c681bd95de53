"""Groups of agents, as imported files and Letta's clients have them. Here a group is a record, not an engine."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.agent import Agent
from agents.models.block import Block
from agents.models.user import User


class Group(models.Model):
    """Agents that belong together. `config` holds the manager's other fields by their wire names."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="agent_groups")
    description = models.TextField(blank=True)
    manager_type = models.CharField(max_length=20)
    manager_agent = models.ForeignKey(
        Agent, on_delete=models.SET_NULL, null=True, blank=True, related_name="managed_groups"
    )
    config = models.JSONField(default=dict, blank=True)
    project_id = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001
    hidden = models.BooleanField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    agents = models.ManyToManyField(Agent, through="GroupAgent", related_name="member_groups")
    shared_blocks = models.ManyToManyField(Block, related_name="sharing_groups", blank=True)

    class Meta:
        indexes = [models.Index(fields=["owner", "created_at", "id"], name="group_page")]

    def __str__(self) -> str:
        return f"{self.manager_type} (group-{self.id})"


class GroupAgent(models.Model):
    """A member of a group, in order."""

    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="agent_rows")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="group_rows")
    position = models.PositiveIntegerField()

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["group", "agent"], name="group_agent_once")]

    def __str__(self) -> str:
        return str(self.agent_id)
