"""Jobs as Letta's clients read them."""

from __future__ import annotations

from typing import Any

from agents.models import Job, JobStatus
from conversations.wire.states import moment, user_id
from souveraine import ids


def job_state(job: Job) -> dict[str, Any]:
    """Return Letta's Job; `metadata` tells kind, progress and error beside what the job's kind adds."""
    is_done = job.completed_at is not None
    lasted = (job.completed_at - job.created_at).total_seconds() if job.completed_at else None
    return {
        "created_by_id": user_id(job.owner_id),
        "last_updated_by_id": user_id(job.owner_id),
        "created_at": moment(job.created_at),
        "updated_at": moment(job.updated_at),
        "status": job.status,
        "completed_at": moment(job.completed_at),
        "stop_reason": _stop_reason(job) if is_done else None,
        "metadata": {
            "type": job.kind,
            **job.metadata,
            "progress": {"done": job.done, "total": job.total or None},
            "error": job.error or None,
        },
        "job_type": "job",
        "background": True,
        "agent_id": None,
        "callback_url": None,
        "callback_sent_at": None,
        "callback_status_code": None,
        "callback_error": None,
        "ttft_ns": None,
        "total_duration_ns": None if lasted is None else int(lasted * 1e9),
        "id": ids.make(ids.JOB, job.pk),
        "user_id": user_id(job.owner_id),
    }


def _stop_reason(job: Job) -> str:
    reasons = {JobStatus.FAILED: "error", JobStatus.CANCELLED: "cancelled"}
    return reasons.get(JobStatus(job.status), "end_turn")
