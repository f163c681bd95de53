"""Whom to tell that a run has ended, and how that went."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from conversations.models.run import Run


class RunCallback(models.Model):
    """The callback of one run, kept apart from it: most runs have none, and every turn reads its run.

    `next_attempt_at` is when it may be sent (again) once the run has ended; null = delivered or given up.
    """

    run = models.OneToOneField(
        Run, on_delete=models.CASCADE, primary_key=True, related_name="callback"
    )
    url = models.CharField(max_length=2000)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)
    status_code = models.PositiveIntegerField(null=True, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["next_attempt_at"],
                condition=models.Q(next_attempt_at__isnull=False),
                name="run_callback_due",
            )
        ]

    def __str__(self) -> str:
        return f"callback of run-{self.run_id}"
