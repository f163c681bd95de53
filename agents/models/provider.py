"""Model providers that people add by the API, beside those of the configuration."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.user import User


class Provider(models.Model):
    """One provider. Its name is the first part of its models' handles, so it is unique on the server.

    `api_key_encrypted` and `access_key_encrypted` are never returned.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="providers")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    last_synced = models.DateTimeField(null=True, blank=True)
    name = models.CharField(max_length=64, unique=True)
    provider_type = models.CharField(max_length=40)
    base_url = models.CharField(max_length=2000, blank=True)
    api_key_encrypted = models.TextField(blank=True)
    access_key_encrypted = models.TextField(blank=True)
    region = models.CharField(max_length=255, blank=True)
    api_version = models.CharField(max_length=255, blank=True)

    class Meta:
        indexes = [models.Index(fields=["owner", "created_at", "id"], name="provider_page")]

    def __str__(self) -> str:
        return f"{self.name} (provider-{self.id})"
