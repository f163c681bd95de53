"""Tools: built-in ones have no owner, custom ones belong to a person."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.agent import Agent
from agents.models.user import User


class Tool(models.Model):
    """A tool as the model is offered it (`json_schema`) and as Letta's clients list it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        User, on_delete=models.CASCADE, null=True, blank=True, related_name="tools"
    )
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    updated_at = models.DateTimeField(default=timezone.now)
    name = models.CharField(max_length=128, db_index=True)
    tool_type = models.CharField(max_length=40, default="custom")
    description = models.TextField(blank=True)
    source_type = models.CharField(max_length=20, default="python")
    source_code = models.TextField(null=True, blank=True)  # noqa: DJ001
    json_schema = models.JSONField(default=dict)
    args_json_schema = models.JSONField(null=True, blank=True)
    pip_requirements = models.JSONField(null=True, blank=True)
    npm_requirements = models.JSONField(null=True, blank=True)
    tags = models.JSONField(default=list, blank=True)
    return_char_limit = models.PositiveIntegerField(default=50_000)
    default_requires_approval = models.BooleanField(null=True, blank=True)
    enable_parallel_execution = models.BooleanField(default=False)
    metadata = models.JSONField(default=dict, blank=True)
    agents = models.ManyToManyField(Agent, through="AgentTool", related_name="tools")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="tool_name_once_per_owner"),
            models.UniqueConstraint(
                fields=["name"],
                condition=models.Q(owner__isnull=True),
                name="builtin_tool_name_once",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class AgentTool(models.Model):
    """A tool attached to an agent, in the order in which it is offered."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="tool_rows")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="agent_rows")
    position = models.PositiveIntegerField()

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["agent", "tool"], name="agent_tool_once")]

    def __str__(self) -> str:
        return str(self.tool_id)
