"""The agent row: truth for everything about an agent but its memory."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.user import User


def default_souveraine() -> dict[str, object]:
    """Return the seed's `_souveraine` defaults (contract souveraine §1.9)."""
    return {
        "n1_enabled": True,
        "reflection_enabled": True,
        "archivist_enabled": True,
        "archivist_threshold": 0.7,
        "sensorium_bandwidth": "high",
    }


class Agent(models.Model):
    """One agent. `config` holds Letta's seldom used fields as given, keyed by their wire names."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="agents")
    created_by = models.UUIDField(null=True)
    last_updated_by = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    updated_at = models.DateTimeField(default=timezone.now, db_index=True)
    name = models.CharField(max_length=255, db_index=True)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  null and "" differ on the wire
    agent_type = models.CharField(max_length=40, default="letta_v1_agent")
    system = models.TextField(blank=True)
    model = models.CharField(max_length=255)
    context_window = models.PositiveIntegerField()
    llm_config = models.JSONField(default=dict)
    model_settings = models.JSONField(default=dict)
    embedding = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001
    embedding_config = models.JSONField(null=True, blank=True)
    compaction_settings = models.JSONField(null=True, blank=True)
    tool_rules = models.JSONField(default=list, blank=True)
    metadata = models.JSONField(null=True, blank=True)
    git_enabled = models.BooleanField(default=True)
    auto_commit = models.BooleanField(default=True)
    souveraine = models.JSONField(default=default_souveraine)
    config = models.JSONField(default=dict, blank=True)
    memory_commit = models.CharField(max_length=64, blank=True)
    last_run_completion = models.DateTimeField(null=True, blank=True)
    last_run_duration_ms = models.BigIntegerField(null=True, blank=True)
    last_stop_reason = models.CharField(max_length=60, null=True, blank=True)  # noqa: DJ001
    hidden = models.BooleanField(null=True, blank=True)
    folder_count = models.PositiveIntegerField(
        default=0
    )  # without folders a turn asks for no files

    class Meta:
        indexes = [
            models.Index(fields=["owner", "created_at", "id"], name="agent_page"),
            models.Index(fields=["owner", "last_run_completion", "id"], name="agent_page_run"),
        ]

    def __str__(self) -> str:
        return f"{self.name} (agent-{self.id})"


class AgentTag(models.Model):
    """One tag of an agent; `position` keeps the order in which they were given."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="tag_rows")
    tag = models.CharField(max_length=255, db_index=True)
    position = models.PositiveIntegerField()

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["agent", "tag"], name="agent_tag_once")]

    def __str__(self) -> str:
        return self.tag


class AgentSecret(models.Model):
    """An environment variable for the agent's tools; the value is encrypted at rest."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="secret_rows")
    key = models.CharField(max_length=255)
    value_encrypted = models.TextField()
    description = models.TextField(null=True, blank=True)  # noqa: DJ001
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "key"], name="agent_secret_once")]

    def __str__(self) -> str:
        return self.key
