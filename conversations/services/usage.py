"""What a run's model calls cost, from its steps."""

from __future__ import annotations

from typing import Any

from conversations.models import Run, Step

SUMMARY_TAG = "compaction"  # of a step that made a summary: it costs, but is no step of the turn
USAGE_FIELDS = ("prompt_tokens", "completion_tokens", "cached_input_tokens", "reasoning_tokens")


def load_usage(run: Run) -> dict[str, Any]:
    """Return the run's usage: sums over its steps, `context_tokens` of the last one; null = not told.

    What a summary cost is in the sums only.
    """
    rows = Step.objects.filter(run=run, status="success").order_by("index")
    steps = list(rows.values_list(*USAGE_FIELDS, "tags"))
    own = [step for step in steps if SUMMARY_TAG not in step[4]]
    prompt, completion = sum(step[0] for step in steps), sum(step[1] for step in steps)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "cached_input_tokens": _sum_told([step[2] for step in steps]),
        "reasoning_tokens": _sum_told([step[3] for step in steps]),
        "step_count": len(own),
        "context_tokens": own[-1][0] + own[-1][1] if own else None,
    }


def _sum_told(values: list[int | None]) -> int | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None
