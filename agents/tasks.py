"""Celery's task for jobs. Loaded by workers only."""

from __future__ import annotations

import uuid
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down
from django.db import connections

from agents.jobs import running
from agents.services.jobs import TASK


@shared_task(name=TASK, ignore_result=True)
def run_job(job_id: str) -> None:
    """Run one job, then others that wait."""
    try:
        running.work(uuid.UUID(job_id))
    finally:
        connections.close_all()


@worker_shutting_down.connect
def _stop(**kwargs: Any) -> None:
    running.stop()
