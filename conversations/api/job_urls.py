"""Routes of jobs."""

from __future__ import annotations

from django.urls import re_path

from conversations.api import jobs

JOB = r"^jobs/(?P<job_id>[^/]+)"

urlpatterns = [
    re_path(r"^jobs/?$", jobs.JobsView.as_view()),
    re_path(r"^jobs/active/?$", jobs.ActiveJobsView.as_view()),
    re_path(rf"{JOB}/cancel/?$", jobs.JobCancelView.as_view()),
    re_path(rf"{JOB}/?$", jobs.JobView.as_view()),
]
