"""What happens at a time of its own: messages that people schedule, and other actions that the server registers."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.utils import timezone

from agents.models import Agent


class Schedule(models.Model):
    """One schedule. `rule` is Letta's object (`one-time`, `recurring`) or our `interval`.

    `due_at` names the occurrence that comes next; null: none. `wake_at` is when to look at it, later than that
    after an attempt that could not be made.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="schedules")
    action = models.CharField(max_length=60, default="message")
    payload: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict)
    rule: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField()
    created_at = models.DateTimeField(default=timezone.now)
    due_at = models.DateTimeField(null=True, blank=True)
    wake_at = models.DateTimeField(null=True, blank=True)
    last_fired_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["agent", "action", "created_at", "id"], name="schedule_page"),
            models.Index(
                fields=["wake_at"],
                condition=models.Q(wake_at__isnull=False),
                name="schedule_due",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} (schedule-{self.id})"
