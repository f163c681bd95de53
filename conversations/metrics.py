"""How long runs and steps took, out of their rows (RunMetrics, StepMetrics). Times are in nanoseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Max, Min, Q

from agents.models import Tool
from conversations.models import Message, Run, Step, ToolCall


def run_metrics(run: Run) -> dict[str, Any]:
    """Return start, duration, number of steps and the ids of the tools that were called."""
    names = ToolCall.objects.filter(run=run).values("name")
    tools = Tool.objects.filter(
        Q(owner__isnull=True) | Q(owner=run.agent.owner_id), name__in=names
    ).order_by("name")
    return {
        "run_start_ns": _ns(run.started_at),
        "run_ns": run.total_duration_ns,
        "num_steps": Step.objects.filter(run=run).count(),
        "tools_used": list(tools.values_list("pk", flat=True)),
    }


def step_metrics(step: Step) -> dict[str, Any]:
    """Return when the model was asked and how long it took, and its tool calls from first to last."""
    answers = Message.objects.filter(step_id=step.pk, role=Message.Role.ASSISTANT).values("id")
    tools = ToolCall.objects.filter(message_id__in=answers, run=step.run_id).aggregate(
        start=Min("started_at"), end=Max("returned_at")
    )
    end = max((moment for moment in (step.completed_at, tools["end"]) if moment), default=None)
    return {
        "step_start_ns": _ns(step.created_at),
        "llm_request_start_ns": _ns(step.created_at),
        "llm_request_ns": _between(step.created_at, step.completed_at),
        "tool_execution_ns": _between(tools["start"], tools["end"]),
        "step_ns": _between(step.created_at, end),
    }


def _ns(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000) * 1000


def _between(start: datetime | None, end: datetime | None) -> int | None:
    if start is None or end is None:
        return None
    return int((end - start).total_seconds() * 1_000_000) * 1000
