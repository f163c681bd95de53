"""Jobs: work that takes longer than a request may. One model for all kinds; a worker's lease says who has it."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.utils import timezone

from agents.models.user import User


class JobStatus(models.TextChoices):
    """Letta's names; the transitions are in `agents.services.jobs`."""

    CREATED = "created"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE = (JobStatus.CREATED, JobStatus.RUNNING)


class Job(models.Model):
    """One job. `kind` names its handler, `arguments` is what that needs; `subject` is the row it is about
    (for a file the folder). `done` of `total` steps are done; a total of 0 is unknown.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="jobs")
    kind = models.CharField(max_length=60)
    status = models.CharField(max_length=12, choices=JobStatus.choices, default=JobStatus.CREATED)
    arguments: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict)
    metadata: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(
        default=dict, blank=True
    )
    subject = models.UUIDField(null=True, blank=True, db_index=True)
    done = models.PositiveIntegerField(default=0)
    total = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)
    attempts = models.PositiveIntegerField(default=0)
    holder = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["owner", "created_at", "id"], name="job_page"),
            models.Index(
                fields=["due_at"], condition=models.Q(status__in=ACTIVE), name="job_active"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} (job-{self.id})"
