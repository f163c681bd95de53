"""Archives: long-term memory of agents in passages, found by search. They may be shared by several agents."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.agent import Agent
from agents.models.user import User


class Archive(models.Model):
    """A collection of passages. `embedding` is the handle of the model that its passages are embedded
    with; empty: they are found by their words only.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="archives")
    created_by = models.UUIDField(null=True)
    last_updated_by = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    name = models.CharField(max_length=255)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  null and "" differ on the wire
    metadata = models.JSONField(null=True, blank=True)
    embedding = models.CharField(max_length=255, blank=True)
    embedding_config = models.JSONField(null=True, blank=True)
    agents = models.ManyToManyField(Agent, through="AgentArchive", related_name="archives")

    class Meta:
        indexes = [
            models.Index(fields=["owner", "created_at", "id"], name="archive_page"),
            models.Index(fields=["owner", "name"], name="archive_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name} (archive-{self.id})"


class AgentArchive(models.Model):
    """An archive attached to an agent. The agent's own one was made for it and goes with it."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="archive_rows")
    archive = models.ForeignKey(Archive, on_delete=models.CASCADE, related_name="agent_rows")
    is_own = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "archive"], name="agent_archive_once"),
            models.UniqueConstraint(
                fields=["agent"], condition=models.Q(is_own=True), name="one_own_archive"
            ),
        ]

    def __str__(self) -> str:
        return f"agent-{self.agent_id} archive-{self.archive_id}"


class Passage(models.Model):
    """One text of an archive. `row` is its place in the full text index, `file` what it is a part of.

    `vector` holds little-endian float32 of unit length, made by the model `vector_model`; null as long as
    there is none. `tags` are in the order given; `PassageTag` has them for the search.
    """

    row = models.BigAutoField(primary_key=True)
    id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    archive = models.ForeignKey(Archive, on_delete=models.CASCADE, related_name="passages")
    file = models.ForeignKey(
        "File", on_delete=models.CASCADE, null=True, blank=True, related_name="passages"
    )
    created_by = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    text = models.TextField()
    tags = models.JSONField(null=True, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    vector_model = models.CharField(max_length=255, blank=True)
    vector = models.BinaryField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["archive", "created_at", "row"], name="passage_page"),
            models.Index(fields=["archive", "vector_model", "row"], name="passage_vectors"),
        ]

    def __str__(self) -> str:
        return f"passage-{self.id}"


class PassageTag(models.Model):
    """One tag of a passage."""

    passage = models.ForeignKey(Passage, on_delete=models.CASCADE, related_name="tag_rows")
    tag = models.CharField(max_length=255)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["passage", "tag"], name="passage_tag_once")]
        indexes = [models.Index(fields=["tag", "passage"], name="passage_by_tag")]

    def __str__(self) -> str:
        return self.tag
