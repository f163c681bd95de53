"""MCP servers that people register. What they were given in secret is encrypted at rest and never returned."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.utils import timezone

from agents.models.user import User


class McpServer(models.Model):
    """One server. `config` holds what may be seen: address, or command and arguments; `secrets_encrypted` a JSON
    object of token, headers and environment. `has_admin_origin`: it was added with a key of the scope `admin`,
    without which a command must never be started.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="mcp_servers")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    name = models.CharField(max_length=255)
    kind = models.CharField(max_length=20)
    config: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict)
    secrets_encrypted = models.TextField(blank=True)
    has_admin_origin = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["owner", "created_at", "id"], name="mcp_server_page")]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="mcp_server_once")]

    def __str__(self) -> str:
        return f"{self.name} (mcp_server-{self.id})"
