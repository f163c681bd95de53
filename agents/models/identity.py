"""Who an agent talks with, as the caller's own system knows them: an identity, its agents and its blocks."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.agent import Agent
from agents.models.block import Block
from agents.models.user import User


class Identity(models.Model):
    """A person or organisation of the caller's system; `identifier_key` is its name there.

    `project` is "" for none: then the uniqueness of keys is the database's business on all databases.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    identifier_key = models.CharField(max_length=255)
    name = models.CharField(max_length=255)
    identity_type = models.CharField(max_length=10)
    project = models.CharField(max_length=255, blank=True)
    properties = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    agents = models.ManyToManyField(Agent, related_name="identities", blank=True)
    blocks = models.ManyToManyField(Block, related_name="identities", blank=True)

    class Meta:
        verbose_name_plural = "identities"
        indexes = [models.Index(fields=["owner", "created_at", "id"], name="identity_page")]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "project", "identifier_key"], name="identity_key_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.identifier_key})"
