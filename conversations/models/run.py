"""Runs, their steps, and the journal of tool calls."""

from __future__ import annotations

import hashlib
import json
import uuid

from django.db import models
from django.utils import timezone

from agents.models import Agent
from conversations.models.conversation import Conversation


class RunStatus(models.TextChoices):
    """States of a run; the transitions are in `conversations.services.runs`."""

    WAITING = "waiting"  # for the turns before it; its messages are not in the conversation yet
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


ACTIVE = (RunStatus.QUEUED, RunStatus.RUNNING)  # one of them per conversation
UNENDED = (RunStatus.WAITING, *ACTIVE)


def key_of_otids(otids: list[str]) -> str:
    """Return the idempotency key of a send whose messages have these otids (contract §4.4)."""
    return hashlib.sha256(json.dumps(otids).encode()).hexdigest()


class Run(models.Model):
    """One turn's work. `owner`, `fence` and `lease_expires_at` say which worker may write for it.

    `event_number` is its place among the conversation's runs as its viewers see them (decision 0006).
    """

    class Surface(models.TextChoices):
        V1 = "v1"
        API = "api"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="runs")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="runs")
    surface = models.CharField(max_length=4, choices=Surface.choices, default=Surface.V1)
    status = models.CharField(max_length=12, choices=RunStatus.choices, default=RunStatus.QUEUED)
    background = models.BooleanField(default=False)
    request = models.JSONField(default=dict)
    request_key = models.CharField(max_length=64, blank=True)
    first_sequence = models.PositiveBigIntegerField()
    event_number = models.PositiveBigIntegerField(null=True, blank=True)
    stop_reason = models.CharField(max_length=60, blank=True)
    error = models.JSONField(null=True, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    owner = models.CharField(max_length=128, blank=True)
    fence = models.PositiveIntegerField(default=0)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    enqueued_at = models.DateTimeField(default=timezone.now)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    last_event_seq = models.PositiveBigIntegerField(default=0)
    stream_closed = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    ttft_ns = models.BigIntegerField(null=True, blank=True)
    total_duration_ns = models.BigIntegerField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["agent", "created_at", "id"], name="run_page"),
            models.Index(fields=["conversation", "created_at", "id"], name="run_conversation_page"),
            models.Index(
                fields=["status", "lease_expires_at"],
                condition=models.Q(status__in=["queued", "running"]),
                name="run_live",
            ),
            models.Index(
                fields=["completed_at"],
                condition=models.Q(stream_closed=False),
                name="run_stream_open",
            ),
            models.Index(fields=["conversation", "request_key"], name="run_request_key"),
            models.Index(
                fields=["conversation", "first_sequence"],
                condition=models.Q(status="waiting"),
                name="run_waiting",
            ),
        ]
        constraints = [
            # The 409 of a busy conversation, across processes.
            models.UniqueConstraint(
                fields=["conversation"],
                condition=models.Q(status__in=["queued", "running"]),
                name="one_live_run_per_conversation",
            ),
            models.UniqueConstraint(
                fields=["conversation", "event_number"], name="run_event_number_unique"
            ),
        ]

    def __str__(self) -> str:
        return f"run-{self.id}"


class Step(models.Model):
    """One model call of a run and what it cost. Written in the transaction that stores its answer."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steps")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="steps")
    index = models.PositiveIntegerField()
    created_at = models.DateTimeField(default=timezone.now)
    completed_at = models.DateTimeField(null=True, blank=True)
    provider_name = models.CharField(max_length=60, blank=True)
    model = models.CharField(max_length=255, blank=True)
    model_handle = models.CharField(max_length=255, blank=True)
    model_endpoint = models.CharField(max_length=500, blank=True)
    context_window = models.PositiveIntegerField(null=True, blank=True)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    cached_input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    reasoning_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    stop_reason = models.CharField(max_length=60, blank=True)
    status = models.CharField(max_length=12, default="success")
    error_type = models.CharField(max_length=60, blank=True)
    error_data = models.JSONField(null=True, blank=True)
    feedback = models.CharField(max_length=10, null=True, blank=True)  # noqa: DJ001
    tags = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ["index"]
        indexes = [models.Index(fields=["agent", "created_at", "id"], name="step_page")]
        constraints = [models.UniqueConstraint(fields=["run", "index"], name="step_index_unique")]

    def __str__(self) -> str:
        return f"step-{self.id}"


class ToolCall(models.Model):
    """Journal of one tool call, keyed by what stays the same over crashes and resumes (architecture §5.5).

    Not keyed by run (a resume is a new one) nor by the provider's call id (it may repeat). `run` is the
    run that carries it out: for a gated call the one that brought the decision. `decision` is
    {"type": "approve"}, {"type": "deny", "reason"} or {"type": "return", "text", "content", "status",
    "stdout", "stderr"}.
    """

    class State(models.TextChoices):
        WAITING = "waiting"  # for a client's decision or return
        DECIDED = "decided"
        STARTED = "started"
        RETURNED = "returned"

    class Gate(models.TextChoices):
        """What a call waits for before it can return."""

        APPROVAL = "approval"  # a tool of the server that a client must allow
        CLIENT = "client"  # a tool that the client runs itself

    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="tool_calls"
    )
    message_id = models.UUIDField()
    position = models.PositiveIntegerField()
    run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, related_name="tool_calls")
    name = models.CharField(max_length=255)
    state = models.CharField(max_length=10, choices=State.choices)
    status = models.CharField(max_length=12, blank=True)
    gate = models.CharField(max_length=10, choices=Gate.choices, blank=True)
    decision = models.JSONField(null=True, blank=True)
    decided_by = models.UUIDField(null=True, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(default=timezone.now)
    returned_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["expires_at"],
                condition=models.Q(state="waiting"),
                name="tool_call_waiting",
            ),
            models.Index(
                fields=["conversation", "decided_at"],
                condition=models.Q(decided_at__isnull=False),
                name="tool_call_decided",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "message_id", "position"], name="tool_call_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} [{self.position}] of message-{self.message_id}"
