"""Admin pages of what `agents` owns. Secrets and key hashes are never shown."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest

from agents.models import (
    Agent,
    AgentBlock,
    AgentSecret,
    AgentTag,
    AgentTool,
    ApiKey,
    Block,
    Tool,
    User,
)
from souveraine.lib.admin import ModelAdmin, ReadOnlyAdmin

admin.site.register(User, UserAdmin)


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin):
    """Keys are made by the command `createkey`; here they can be seen and revoked (set `revoked at`)."""

    list_display = (
        "name",
        "prefix",
        "owner",
        "scopes",
        "created_at",
        "last_used_at",
        "expires_at",
        "revoked_at",
    )
    readonly_fields = ("prefix", "owner", "scopes", "created_at", "last_used_at")
    exclude = ("hash",)
    search_fields = ("name", "prefix")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(Agent)
class AgentAdmin(ReadOnlyAdmin):
    """Agents. Changes go through the API, so that memory and agent.json follow."""

    list_display = (
        "name",
        "id",
        "owner",
        "model",
        "created_at",
        "last_run_completion",
        "last_stop_reason",
    )
    search_fields = ("name", "id")
    list_filter = ("agent_type", "git_enabled")
    date_hierarchy = "created_at"


@admin.register(Block)
class BlockAdmin(ReadOnlyAdmin):
    """Blocks, read-only: the truth of an agent's block is its file."""

    list_display = ("label", "id", "owner", "limit", "read_only", "updated_at", "version")
    search_fields = ("label", "id", "value")


@admin.register(Tool)
class ToolAdmin(ReadOnlyAdmin):
    """Tools; built-in ones have no owner."""

    list_display = ("name", "tool_type", "owner", "default_requires_approval", "updated_at")
    list_filter = ("tool_type",)
    search_fields = ("name",)


@admin.register(AgentSecret)
class AgentSecretAdmin(ReadOnlyAdmin):
    """Secrets by name; the value is not shown."""

    list_display = ("key", "agent", "updated_at")
    readonly_fields = ("key", "agent")
    exclude = ("value_encrypted",)


@admin.register(AgentBlock)
class AgentBlockAdmin(ReadOnlyAdmin):
    """Which agent has which block."""

    list_display = ("agent", "label", "block", "position", "is_projected")
    list_select_related = ("agent", "block")


@admin.register(AgentTool)
class AgentToolAdmin(ReadOnlyAdmin):
    """Which agent has which tool."""

    list_display = ("agent", "tool", "position")
    list_select_related = ("agent", "tool")


@admin.register(AgentTag)
class AgentTagAdmin(ReadOnlyAdmin):
    """Tags of agents."""

    list_display = ("agent", "tag", "position")
    list_select_related = ("agent",)
    search_fields = ("tag",)
