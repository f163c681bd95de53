"""How long runs and steps took, out of their rows (RunMetrics, StepMetrics). Times are in nanoseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Max, Min, Q

from agents.models import Tool
from conversations.models import Message, Run, Step, ToolCall
from souveraine import ids


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


def run_trace(run: Run, limit: int) -> list[dict[str, Any]]:
    """Return the run's model calls and tool calls in the order of their starts, the first `limit` of them.

    Each: kind ("llm_call" or "tool_call"), name, started_at, completed_at, status, and what is known of that kind.
    """
    spans = [_llm_span(step) for step in Step.objects.filter(run=run).order_by("index")[:limit]]
    calls = ToolCall.objects.filter(run=run).order_by("started_at", "position")
    spans += [_tool_span(call) for call in calls[:limit]]
    return sorted(spans, key=lambda span: str(span["started_at"]))[:limit]


def _llm_span(step: Step) -> dict[str, Any]:
    return {
        "kind": "llm_call",
        "name": step.model_handle,
        "started_at": _text(step.created_at),
        "completed_at": _text(step.completed_at),
        "status": step.status,
        "step_id": ids.make(ids.STEP, step.pk),
        "prompt_tokens": step.prompt_tokens,
        "completion_tokens": step.completion_tokens,
        "stop_reason": step.stop_reason or None,
        "error_type": step.error_type or None,
    }


def _tool_span(call: ToolCall) -> dict[str, Any]:
    return {
        "kind": "tool_call",
        "name": call.name,
        "started_at": _text(call.started_at),
        "completed_at": _text(call.returned_at),
        "status": call.status or call.state,
        "message_id": ids.make(ids.MESSAGE, call.message_id),
        "position": call.position,
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _ns(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000) * 1000


def _between(start: datetime | None, end: datetime | None) -> int | None:
    if start is None or end is None:
        return None
    return int((end - start).total_seconds() * 1_000_000) * 1000
