"""People and their API keys."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """A person. The first one has the old server's default user id, which clients may remember."""

    FIRST_ID = uuid.UUID("00000000-0000-4000-8000-000000000000")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)


class ApiKey(models.Model):
    """A bearer key: only its SHA-256 and a short prefix are stored (32 random bytes need no slow hash)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16)
    hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
