"""Routes of jobs and schedules: what is done behind requests."""

from __future__ import annotations

from django.urls import re_path

from conversations.api import jobs, schedules

SCHEDULE = r"^agents/(?P<agent_id>[^/]+)/schedule"
JOB = r"^jobs/(?P<job_id>[^/]+)"

urlpatterns = [
    re_path(r"^jobs/?$", jobs.JobsView.as_view()),
    re_path(r"^jobs/active/?$", jobs.ActiveJobsView.as_view()),
    re_path(rf"{JOB}/cancel/?$", jobs.JobCancelView.as_view()),
    re_path(rf"{JOB}/?$", jobs.JobView.as_view()),
    re_path(rf"{SCHEDULE}/?$", schedules.AgentSchedulesView.as_view()),
    re_path(
        rf"{SCHEDULE}/(?P<scheduled_message_id>[^/]+)/?$", schedules.AgentScheduleView.as_view()
    ),
]
