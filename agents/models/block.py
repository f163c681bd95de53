"""Memory blocks. A block of one agent is a cache of a file; a shared or free one is the truth (§4)."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.agent import Agent
from agents.models.user import User


class Block(models.Model):
    """A labelled piece of memory. `limit` counts characters; null = unlimited (K20)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="blocks")
    created_by = models.UUIDField(null=True)
    last_updated_by = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    updated_at = models.DateTimeField(default=timezone.now)
    label = models.CharField(max_length=255, db_index=True)
    value = models.TextField(blank=True)
    limit = models.PositiveIntegerField(null=True, blank=True, default=100_000)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  null and "" differ on the wire
    read_only = models.BooleanField(default=False)
    metadata = models.JSONField(default=dict, blank=True)
    tags = models.JSONField(default=list, blank=True)
    hidden = models.BooleanField(null=True, blank=True)
    config = models.JSONField(default=dict, blank=True)
    version = models.PositiveIntegerField(default=1)
    warning = models.TextField(blank=True)
    rendered = models.JSONField(
        default=list, blank=True
    )  # hashes of the files lately written for it
    agents = models.ManyToManyField(Agent, through="AgentBlock", related_name="blocks")

    class Meta:
        indexes = [models.Index(fields=["owner", "created_at", "id"], name="block_page")]

    def __str__(self) -> str:
        return f"{self.label} (block-{self.id})"


class AgentBlock(models.Model):
    """A block attached to an agent. The label is repeated here so that it is unique per agent."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="block_rows")
    block = models.ForeignKey(Block, on_delete=models.CASCADE, related_name="agent_rows")
    label = models.CharField(max_length=255)
    position = models.PositiveIntegerField()
    is_projected = models.BooleanField(default=False)  # its file has been written at least once

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "label"], name="agent_block_label_once"),
            models.UniqueConstraint(fields=["agent", "block"], name="agent_block_once"),
        ]

    def __str__(self) -> str:
        return self.label
