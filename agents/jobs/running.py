"""Running jobs in a worker: few at once, the lease renewed by a thread beside, one after another while some wait."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, connections

from agents.jobs.kinds import JobKind, kind_of
from agents.models import Job
from agents.services import jobs
from souveraine.errors import ProviderError, SouveraineError, Unavailable

logger = logging.getLogger(__name__)
JOBS_AT_ONCE = 2  # in one worker: turns go first
RENEWALS = 5  # within one lease
RETRY_AFTER = timedelta(seconds=30)  # times the number of the attempt

_slots = threading.BoundedSemaphore(JOBS_AT_ONCE)
_stopping = threading.Event()


class JobStopped(Exception):
    """The job was cancelled, another worker has it, or this worker shuts down."""


class RunningJob:
    """The context of a handler."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.is_lost = threading.Event()

    def progress(self, done: int, total: int) -> None:
        """See `JobContext`. Raises JobStopped."""
        if _stopping.is_set() or self.is_lost.is_set():
            raise JobStopped
        if not jobs.renew(self.job, done=done, total=total):
            raise JobStopped

    def hold(self) -> None:
        """See `JobContext`. Raises JobStopped."""
        if not jobs.lock_held(self.job):
            raise JobStopped


def work(job_id: uuid.UUID) -> None:
    """Run the job, then others that wait. Returns at once when this worker has enough of them already."""
    if _stopping.is_set() or not _slots.acquire(blocking=False):
        return
    try:
        wanted: uuid.UUID | None = job_id
        while wanted is not None and not _stopping.is_set():
            job = jobs.claim(wanted)
            if job is not None:
                run(job)
            wanted = jobs.next_due()
    finally:
        _slots.release()


def stop() -> None:
    """Give running jobs back at their next step, and take none any more: the worker shuts down."""
    _stopping.set()


def run(job: Job) -> None:
    """Run a claimed job to its end."""
    kind = kind_of(job.kind)
    if kind is None:
        jobs.fail(job, f"This server does not know jobs of the kind {job.kind!r}.")
        return
    context = RunningJob(job)
    try:
        with _kept(context):
            _run(kind, context)
    except JobStopped:
        jobs.give_back(job, is_attempt=False)  # nothing, when it was cancelled or lost
    except (ProviderError, Unavailable) as exc:
        reason = exc.provider_detail if isinstance(exc, ProviderError) else exc.message
        if isinstance(exc, ProviderError) and not exc.is_transient:
            jobs.fail(job, reason)
        else:
            jobs.give_back(job, reason, RETRY_AFTER * job.attempts)
    except SouveraineError as exc:
        jobs.fail(job, exc.message)


def _run(kind: JobKind, context: RunningJob) -> None:
    try:
        added = kind.run(context)
    except (JobStopped, SouveraineError):
        raise
    except DatabaseError as exc:
        connections.close_all()
        raise Unavailable(f"The database did not answer: {exc}") from exc
    except Exception:  # a named edge: a task's end that nobody sees would leave the job running
        logger.exception("event=job_broke job_id=job-%s kind=%s", context.job.pk, kind.name)
        jobs.fail(context.job, "An unexpected error ended this job; the worker's log has it.")
        return
    jobs.complete(context.job, added)


@contextmanager
def _kept(context: RunningJob) -> Iterator[None]:
    """Renew the lease while the block runs."""
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(context, ended), name="job-lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


def _keep(context: RunningJob, ended: threading.Event) -> None:
    interval = settings.CONFIG["SOUVERAINE_LEASE_SECONDS"] / RENEWALS
    try:
        while not ended.wait(interval):
            try:
                if not jobs.renew(context.job):
                    context.is_lost.set()
                    return
            except DatabaseError as exc:
                logger.warning("event=job_lease_not_renewed error=%r", exc)
                connections.close_all()
    finally:
        connections.close_all()
