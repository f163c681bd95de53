"""Admin pages of what `conversations` owns: to look at, not to edit (the engine owns these rows)."""

from __future__ import annotations

from django.contrib import admin

from conversations.models import (
    Checkpoint,
    CheckpointWrite,
    Conversation,
    Message,
    Run,
    Step,
    ToolCall,
)
from souveraine.lib.admin import ReadOnlyAdmin


@admin.register(Conversation)
class ConversationAdmin(ReadOnlyAdmin):
    """Conversations with their counters."""

    list_display = (
        "id",
        "agent",
        "is_default",
        "summary",
        "turn_count",
        "context_pressure",
        "last_message_at",
    )
    search_fields = ("id", "summary")
    list_filter = ("is_default",)


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    """Messages."""

    list_display = ("id", "conversation", "sequence", "role", "status", "created_at")
    list_filter = ("role",)
    search_fields = ("id",)
    list_select_related = ("conversation",)


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs: who works on what, and why one failed."""

    list_display = (
        "id",
        "conversation",
        "status",
        "stop_reason",
        "owner",
        "attempts",
        "created_at",
        "completed_at",
    )
    list_filter = ("status", "surface", "stop_reason")
    search_fields = ("id",)


@admin.register(Step)
class StepAdmin(ReadOnlyAdmin):
    """Model calls and what they cost."""

    list_display = (
        "id",
        "run",
        "index",
        "model_handle",
        "prompt_tokens",
        "completion_tokens",
        "status",
        "created_at",
    )
    list_filter = ("status",)


@admin.register(ToolCall)
class ToolCallAdmin(ReadOnlyAdmin):
    """The journal of tool calls."""

    list_display = (
        "name",
        "message_id",
        "position",
        "state",
        "status",
        "started_at",
        "returned_at",
    )
    list_filter = ("state", "status")


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnlyAdmin):
    """Checkpoints of threads."""

    list_display = ("thread", "checkpoint_id", "parent_id", "created_at")
    exclude = ("data",)


@admin.register(CheckpointWrite)
class CheckpointWriteAdmin(ReadOnlyAdmin):
    """Pending writes of checkpoints."""

    list_display = ("checkpoint_id", "task_id", "index", "channel")
    exclude = ("data",)
