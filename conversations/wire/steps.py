"""Steps, and the metrics of steps and runs, as Letta's clients read them (contract §6)."""

from __future__ import annotations

from typing import Any

from conversations.models import Run, Step
from conversations.wire.states import ORGANIZATION_ID
from souveraine import ids


def run_metrics_state(run: Run, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return RunMetrics."""
    return {
        "id": ids.make(ids.RUN, run.pk),
        "organization_id": ORGANIZATION_ID,
        "agent_id": ids.make(ids.AGENT, run.agent_id),
        "project_id": None,
        **metrics,
        "tools_used": [ids.make(ids.TOOL, pk) for pk in metrics["tools_used"]],
        "template_id": None,
        "base_template_id": None,
    }


def step_metrics_state(step: Step, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return StepMetrics."""
    return {
        "id": ids.make(ids.STEP, step.pk),
        "organization_id": ORGANIZATION_ID,
        "provider_id": None,
        "run_id": ids.make(ids.RUN, step.run_id),
        "agent_id": ids.make(ids.AGENT, step.agent_id),
        **metrics,
        "base_template_id": None,
        "template_id": None,
        "project_id": None,
    }


def step_state(step: Step) -> dict[str, Any]:
    """Return Letta's Step."""
    return {
        "id": ids.make(ids.STEP, step.pk),
        "origin": None,
        "organization_id": ORGANIZATION_ID,
        "provider_id": None,
        "run_id": ids.make(ids.RUN, step.run_id),
        "agent_id": ids.make(ids.AGENT, step.agent_id),
        "provider_name": step.provider_name,
        "provider_category": "base",
        "model": step.model,
        "model_handle": step.model_handle,
        "model_endpoint": step.model_endpoint or None,
        "context_window_limit": step.context_window,
        "completion_tokens": step.completion_tokens,
        "prompt_tokens": step.prompt_tokens,
        "total_tokens": step.prompt_tokens + step.completion_tokens,
        "cached_input_tokens": step.cached_input_tokens,
        "cache_write_tokens": None,
        "reasoning_tokens": step.reasoning_tokens,
        "completion_tokens_details": None,
        "prompt_tokens_details": None,
        "stop_reason": step.stop_reason or None,
        "tags": step.tags,
        "tid": None,
        "trace_id": None,
        "request_id": None,
        "messages": [],
        "feedback": step.feedback,
        "project_id": None,
        "error_type": step.error_type or None,
        "error_data": step.error_data,
        "status": step.status,
    }
