"""What people think of a step."""

from __future__ import annotations

from typing import Any

from conversations.models import Step


def rate_step(step: Step, given: dict[str, Any]) -> Step:
    """Set `feedback` (positive, negative, None) and `tags` as far as they are given. Idempotent."""
    if "feedback" in given:
        step.feedback = given["feedback"]
    if given.get("tags") is not None:
        step.tags = given["tags"]
    step.save(update_fields=["feedback", "tags"])
    return step
