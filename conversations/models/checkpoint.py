"""LangGraph checkpoints on the ORM; written and read by `conversations.turn.checkpointer` only."""

from __future__ import annotations

from django.db import models


class Checkpoint(models.Model):
    """One checkpoint of a thread (thread id = conversation id)."""

    thread = models.CharField(max_length=64)
    namespace = models.CharField(max_length=64, blank=True)
    checkpoint_id = models.CharField(max_length=64)
    parent_id = models.CharField(max_length=64, blank=True)
    kind = models.CharField(max_length=16)
    data = models.BinaryField()
    metadata = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["thread", "namespace", "checkpoint_id"], name="checkpoint_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.thread}/{self.checkpoint_id}"


class CheckpointWrite(models.Model):
    """A pending write of one task of a checkpoint."""

    thread = models.CharField(max_length=64)
    namespace = models.CharField(max_length=64, blank=True)
    checkpoint_id = models.CharField(max_length=64)
    task_id = models.CharField(max_length=64)
    task_path = models.CharField(max_length=255, blank=True)
    index = models.IntegerField()
    channel = models.CharField(max_length=128)
    kind = models.CharField(max_length=16)
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["thread", "namespace", "checkpoint_id", "task_id", "index"],
                name="checkpoint_write_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.checkpoint_id}/{self.task_id}/{self.index}"
