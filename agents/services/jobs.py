"""The state machine of jobs: every transition is one conditional UPDATE whose row count is checked.

    created ──claim──► running ──finish──► completed | failed
       ▲  └──────cancel──┴──────────────► cancelled
       └────── give back (worker gone, provider away) ──┘

A terminal state never changes. `agents.jobs` says what a kind does and runs it.
"""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from agents.actor import Actor
from agents.jobs.kinds import kind_of, one_per_subject
from agents.models import Job, JobStatus
from agents.models.job import ACTIVE
from souveraine.errors import Conflict
from souveraine.lib.task_queue import TaskQueue

logger = logging.getLogger(__name__)
TASK = "agents.run_job"
MAX_ATTEMPTS = 3
ENQUEUE_AGAIN_AFTER = timedelta(seconds=6)
SWEPT_AT_ONCE = 50
GIVEN_UP = (
    "The worker ended {attempts} times during this job, so it was given up. Start it again, and look into "
    "the worker's log when it happens again."
)
queue = TaskQueue(TASK)


def create_job(
    actor: Actor,
    kind: str,
    arguments: dict[str, Any],
    *,
    subject: uuid.UUID | None = None,
    metadata: dict[str, Any] | None = None,
) -> Job:
    """Store a job and, once the caller's transaction is committed, hand it to the workers."""
    job = Job.objects.create(
        owner=actor.user, kind=kind, arguments=arguments, subject=subject, metadata=metadata or {}
    )
    transaction.on_commit(lambda: queue.enqueue(job.pk))
    return job


def _lease() -> timedelta:
    return timedelta(seconds=settings.CONFIG["SOUVERAINE_LEASE_SECONDS"])


def claim(job_id: uuid.UUID) -> Job | None:
    """Take a job that is due; None when another worker has it, it has ended, or must wait for another job."""
    holder = uuid.uuid4()
    claimed = (
        _due()
        .filter(pk=job_id)
        .update(
            status=JobStatus.RUNNING,
            holder=holder,
            attempts=F("attempts") + 1,
            lease_expires_at=Now() + _lease(),
            updated_at=timezone.now(),
        )
    )
    return Job.objects.select_related("owner").get(pk=job_id, holder=holder) if claimed else None


def next_due() -> uuid.UUID | None:
    """Return the oldest job that waits for a worker."""
    return _due().order_by("due_at").values_list("pk", flat=True).first()


def _due() -> QuerySet[Job]:
    same = Job.objects.filter(
        status=JobStatus.RUNNING, kind=OuterRef("kind"), subject=OuterRef("subject")
    )
    due = Job.objects.filter(status=JobStatus.CREATED, due_at__lte=timezone.now())
    return due.exclude(Q(kind__in=one_per_subject()) & Exists(same))


def _held(job: Job) -> Any:
    return Job.objects.filter(pk=job.pk, holder=job.holder, status=JobStatus.RUNNING)


def renew(job: Job, **changes: Any) -> bool:
    """Renew the lease; False when the job was cancelled or another worker has it."""
    return bool(_held(job).update(lease_expires_at=Now() + _lease(), **changes))


def lock_held(job: Job) -> bool:
    """Lock the job's row inside the caller's transaction; False when it is not this worker's any more."""
    return bool(_held(job).select_for_update().exists())


def complete(job: Job, metadata: dict[str, Any] | None = None) -> bool:
    """End a job well; `metadata` is added to what clients see of it."""
    now = timezone.now()
    return bool(
        _held(job).update(
            status=JobStatus.COMPLETED,
            metadata={**job.metadata, **(metadata or {})},
            lease_expires_at=None,
            completed_at=now,
            updated_at=now,
        )
    )


def fail(job: Job, error: str) -> bool:
    """End a job that cannot be done; its kind tidies up in the same transaction."""
    with transaction.atomic():
        ended = _held(job).update(**_ending(JobStatus.FAILED, error))
        if ended:
            _tidy(job, error)
    logger.warning("event=job_failed job_id=job-%s kind=%s error=%s", job.pk, job.kind, error[:500])
    return bool(ended)


def give_back(
    job: Job, error: str = "", after: timedelta = timedelta(0), *, is_attempt: bool = True
) -> None:
    """Let a worker take the job up later; a job that was tried MAX_ATTEMPTS times fails with `error`."""
    if is_attempt and job.attempts >= MAX_ATTEMPTS:
        fail(job, error or GIVEN_UP.format(attempts=job.attempts))
        return
    _held(job).update(
        status=JobStatus.CREATED,
        holder=None,
        lease_expires_at=None,
        error=error,
        attempts=job.attempts if is_attempt else job.attempts - 1,
        due_at=timezone.now() + after,
        updated_at=timezone.now(),
    )


def cancel_job(job: Job) -> Job:
    """Cancel; the worker that has it hears of it at its next step. Raises Conflict when it has ended."""
    with transaction.atomic():
        ended = Job.objects.filter(pk=job.pk, status__in=ACTIVE).update(
            **_ending(JobStatus.CANCELLED, "")
        )
        if ended:
            _tidy(job, "The job was cancelled.")
    job.refresh_from_db()
    if not ended:
        raise Conflict(
            f"job-{job.pk} has ended already ({job.status}); there is nothing to cancel."
        )
    return job


def delete_job(job: Job) -> None:
    """Delete the record of a job; one that has not ended is cancelled."""
    with transaction.atomic():
        if Job.objects.select_for_update().filter(pk=job.pk, status__in=ACTIVE).exists():
            cancel_job(job)
        Job.objects.filter(pk=job.pk).delete()


def _ending(status: JobStatus, error: str) -> dict[str, Any]:
    now = timezone.now()
    return {
        "status": status,
        "error": error,
        "holder": None,
        "lease_expires_at": None,
        "completed_at": now,
        "updated_at": now,
    }


def _tidy(job: Job, reason: str) -> None:
    kind = kind_of(job.kind)
    if kind is not None and kind.gave_up is not None:
        kind.gave_up(job, reason)


def sweep() -> list[uuid.UUID]:
    """Take jobs from workers that are gone; return those to hand to the workers. Any number may sweep at once."""
    expired = Job.objects.filter(status=JobStatus.RUNNING, lease_expires_at__lt=Now())
    for job in expired[:SWEPT_AT_ONCE]:
        logger.warning("event=job_lost_its_worker job_id=job-%s kind=%s", job.pk, job.kind)
        give_back(job)
    now = timezone.now()
    overdue = Job.objects.filter(status=JobStatus.CREATED, due_at__lt=now - ENQUEUE_AGAIN_AFTER)
    found = []
    for pk in overdue.order_by("due_at").values_list("pk", flat=True)[:SWEPT_AT_ONCE]:
        if overdue.filter(pk=pk).update(due_at=now):
            found.append(pk)
    return found
