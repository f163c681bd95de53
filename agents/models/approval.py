"""Decisions that a person wants remembered, so that the same call does not ask again."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.agent import Agent


class RememberedDecision(models.Model):
    """Whether an agent may call a tool that requires approval, until revoked."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="remembered_decisions")
    tool_name = models.CharField(max_length=128)
    approve = models.BooleanField()
    reason = models.TextField(blank=True)
    decided_by = models.UUIDField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "tool_name"], name="one_decision_per_agent_and_tool"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tool_name}: {'approve' if self.approve else 'deny'}"
