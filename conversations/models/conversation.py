"""Conversations and their messages. Order is `sequence`, never a timestamp or an id."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models import Agent


class Conversation(models.Model):
    """One thread of an agent; its id is the LangGraph thread id.

    `window_start` is the sequence at which the prompt window begins; only
    `conversations.services.window` moves it. Counters are written when a run ends. `pending_message_id`
    is the assistant message whose tool calls wait for a client, or null. `calibration` is what is known of
    the model's token counts (`conversations.services.tokens.Calibration`). `inherited` says which messages of
    others a fork begins with (`conversations.lineage`); `isolated_blocks` is {label: id of the copy of the
    agent's block that only this conversation uses}.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="conversations")
    is_default = models.BooleanField(default=False)
    created_by = models.UUIDField(null=True)
    last_updated_by = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    updated_at = models.DateTimeField(default=timezone.now)
    summary = models.TextField(null=True, blank=True)  # noqa: DJ001  null and "" differ on the wire
    isolated_blocks = models.JSONField(default=dict, blank=True)
    inherited = models.JSONField(default=list, blank=True)
    model = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001
    model_settings = models.JSONField(null=True, blank=True)
    context_window = models.PositiveIntegerField(null=True, blank=True)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001
    last_message_at = models.DateTimeField(null=True, blank=True)
    last_run_completion = models.DateTimeField(null=True, blank=True)
    last_sequence = models.PositiveBigIntegerField(default=0)
    last_event_number = models.PositiveBigIntegerField(default=0)
    window_start = models.PositiveBigIntegerField(default=0)
    message_count = models.PositiveBigIntegerField(default=0)
    turn_count = models.PositiveBigIntegerField(default=0)
    context_tokens = models.PositiveBigIntegerField(default=0)
    context_pressure = models.FloatField(default=0.0)
    last_n25_at = models.DateTimeField(null=True, blank=True)
    system_fingerprint = models.CharField(max_length=64, blank=True)
    pending_message_id = models.UUIDField(null=True, blank=True)
    calibration = models.JSONField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    hidden = models.BooleanField(default=False)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["agent", "created_at", "id"], name="conversation_page"),
            models.Index(
                fields=["agent", "last_message_at", "id"], name="conversation_page_message"
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["agent"],
                condition=models.Q(is_default=True),
                name="one_default_conversation",
            )
        ]

    def __str__(self) -> str:
        return f"conv-{self.id}"


class Message(models.Model):
    """One stored message.

    `text` is the plain text, which is searched; `content` holds Letta content parts only when there is
    more than one text part. `tool_calls` of an assistant message is a list of {"id", "name",
    "arguments"} and, for a call that waits for a client, "gate"; a tool message answers `tool_call_id`.
    `row` orders messages across the conversations of an agent (insertion order).
    The newest summary of a window stands before its other messages, whatever its sequence; `compaction`
    has what it stands for (`conversations.services.window.Compaction`).
    """

    class Role(models.TextChoices):
        SYSTEM = "system"
        USER = "user"
        ASSISTANT = "assistant"
        TOOL = "tool"
        APPROVAL = "approval"
        SUMMARY = "summary"

    row = models.BigAutoField(primary_key=True)
    id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="messages"
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="messages")
    sequence = models.PositiveBigIntegerField()
    role = models.CharField(max_length=12, choices=Role.choices)
    text = models.TextField(blank=True)
    content = models.JSONField(null=True, blank=True)
    reasoning = models.TextField(blank=True)
    tool_calls = models.JSONField(default=list, blank=True)
    tool_call_id = models.CharField(max_length=255, blank=True)
    name = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001
    status = models.CharField(
        max_length=12, blank=True
    )  # tool: success | error; assistant: "" | partial
    stdout = models.JSONField(null=True, blank=True)
    stderr = models.JSONField(null=True, blank=True)
    approvals = models.JSONField(null=True, blank=True)
    compaction = models.JSONField(null=True, blank=True)
    otid = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001
    sender_id = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001
    model = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001
    run = models.ForeignKey(
        "Run", on_delete=models.SET_NULL, null=True, blank=True, related_name="messages"
    )
    step_id = models.UUIDField(null=True, blank=True, db_index=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["sequence"]
        indexes = [
            models.Index(fields=["agent", "row"], name="message_agent_page"),
            models.Index(fields=["conversation", "otid"], name="message_otid"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "sequence"], name="message_sequence_unique"
            )
        ]

    def __str__(self) -> str:
        return f"message-{self.id}"

    @property
    def is_said(self) -> bool:
        """A client has said it, also in the assistant's name: what it sends has an otid, a model's answer has none."""
        if self.role == self.Role.ASSISTANT:
            return self.otid is not None
        return self.role == self.Role.USER
