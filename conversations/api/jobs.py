"""`/v1/jobs`: work that goes on behind a request, such as reading an uploaded file."""

from __future__ import annotations

from typing import Literal

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from agents.job_selectors import get_job, list_jobs
from agents.models import Job
from agents.services.jobs import cancel_job, delete_job
from conversations.api.base import ApiView, cursor
from conversations.wire.jobs import job_state
from souveraine import ids
from souveraine.api.pagination import MAX_LIMIT, PageQuery
from souveraine.api.validation import parse_id, parse_query


class JobFilters(PageQuery):
    """Query of the jobs list; `ascending` is the older form of `order`, which wins."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)
    order: Literal["asc", "desc"] | None = None  # type: ignore[assignment]  # to see whether it was given
    ascending: bool | None = None
    source_id: str | None = None
    active: bool = False


class JobApiView(ApiView):
    """A view of one job."""

    def job(self, text: str) -> Job:
        """Return the job of the path. Raises ValidationFailed or NotFound."""
        return get_job(self.actor, parse_id(ids.JOB, text))


class JobsView(ApiView):
    """The collection."""

    query_model = JobFilters

    @extend_schema(operation_id="jobs_list")
    def get(self, request: Request) -> Response:
        """List jobs, newest first."""
        query = parse_query(JobFilters, request)
        return self.listed(query, is_active=query.active, is_ascending=False)

    def listed(self, query: JobFilters, *, is_active: bool, is_ascending: bool) -> Response:
        """Answer with one page; `is_ascending` is the order when the query names none."""
        if query.ascending is not None:
            is_ascending = query.ascending
        if query.order is not None:
            is_ascending = query.order == "asc"
        found = list_jobs(
            self.actor,
            subject=cursor(ids.FOLDER, query.source_id or None, "source_id"),
            is_active=is_active,
            ascending=is_ascending,
            limit=query.limit,
            after=cursor(ids.JOB, query.after, "after"),
            before=cursor(ids.JOB, query.before, "before"),
        )
        return Response([job_state(job) for job in found])


class ActiveJobsView(JobsView):
    """Those that have not ended."""

    @extend_schema(operation_id="jobs_active_list")
    def get(self, request: Request) -> Response:
        """List jobs that wait or run, oldest first."""
        query = parse_query(JobFilters, request)
        return self.listed(query, is_active=True, is_ascending=True)


class JobView(JobApiView):
    """One job."""

    @extend_schema(operation_id="jobs_retrieve")
    def get(self, request: Request, job_id: str) -> Response:
        """Return the job."""
        return Response(job_state(self.job(job_id)))

    @extend_schema(operation_id="jobs_delete")
    def delete(self, request: Request, job_id: str) -> Response:
        """Delete the record of the job, which is cancelled if it has not ended; returns it."""
        job = self.job(job_id)
        delete_job(job)
        return Response(job_state(job))


class JobCancelView(JobApiView):
    """Cancelling a job."""

    @extend_schema(operation_id="jobs_cancel", request=None)
    def patch(self, request: Request, job_id: str) -> Response:
        """Cancel the job; 409 when it has ended."""
        return Response(job_state(cancel_job(self.job(job_id))))
