"""Reads of jobs."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from agents.actor import Actor
from agents.models import Job
from agents.models.job import ACTIVE
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.errors import NotFound


def jobs_of(actor: Actor) -> QuerySet[Job]:
    """Return the jobs that the actor may see."""
    return Job.objects.filter(owner=actor.user)


def get_job(actor: Actor, job_id: uuid.UUID) -> Job:
    """Return one job. Raises NotFound."""
    job = jobs_of(actor).filter(pk=job_id).first()
    if job is None:
        raise NotFound(f"Job with id '{ids.make(ids.JOB, job_id)}' not found")
    return job


def list_jobs(
    actor: Actor,
    *,
    subject: uuid.UUID | None,
    is_active: bool,
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Job]:
    """Return one page of jobs by date. Raises NotFound for an unknown cursor."""
    queryset = jobs_of(actor)
    if subject is not None:
        queryset = queryset.filter(subject=subject)
    if is_active:
        queryset = queryset.filter(status__in=ACTIVE)
    return page(
        queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_job(actor, after) if after else None,
        before=get_job(actor, before) if before else None,
    )
