"""Jobs: they end once, whatever happens to their workers, and clients see how far they are."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.actor import Actor, keyless_actor
from agents.jobs import kinds, running
from agents.jobs.kinds import JobContext, JobKind
from agents.models import Job, JobStatus
from agents.services import jobs
from souveraine.errors import InvalidArgument, ProviderError, Unavailable
from tests.api.paging import walk
from tests.conftest import Api, wait_for

JOB_KEYS = set(
    (  # noqa: SIM905
        "created_by_id last_updated_by_id created_at updated_at status completed_at stop_reason metadata job_type "
        "background agent_id callback_url callback_sent_at callback_status_code callback_error ttft_ns "
        "total_duration_ns id user_id"
    ).split()
)


class Script:
    """A kind of job whose handler does what the test says."""

    def __init__(self) -> None:
        self.action: Any = lambda context: {"found": 3}
        self.calls = 0
        self.given_up: list[str] = []

    def run(self, context: JobContext) -> dict[str, Any] | None:
        self.calls += 1
        return self.action(context)  # type: ignore[no-any-return]


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script()
    kinds.register(JobKind("script", made.run, lambda job, reason: made.given_up.append(reason)))
    yield made
    del kinds._KINDS["script"]


@pytest.fixture
def actor(idle_api: Api) -> Actor:
    return keyless_actor()


def lose_worker(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def reload(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def test_it_works(api: Api, script: Script) -> None:
    def act(context: JobContext) -> dict[str, Any]:
        context.progress(1, 2)
        return {"found": 3}

    script.action = act
    job = jobs.create_job(keyless_actor(), "script", {"n": 1}, metadata={"file_name": "a.txt"})
    wait_for(lambda: reload(job).status == JobStatus.COMPLETED)
    state = api.get(f"/v1/jobs/job-{job.pk}").json()
    assert set(state) == JOB_KEYS
    assert state["status"] == "completed"
    assert state["metadata"] == {
        "type": "script",
        "file_name": "a.txt",
        "found": 3,
        "progress": {"done": 1, "total": 2},
        "error": None,
    }
    assert state["completed_at"]
    assert api.get("/v1/jobs/").json() == [state]
    assert api.get("/v1/jobs/active").json() == []


def test_jobs_are_listed_in_pages_and_by_what_they_are_about(idle_api: Api, actor: Actor) -> None:
    folder = uuid.uuid4()
    made = [jobs.create_job(actor, "script", {}, subject=folder) for _ in range(5)]
    jobs.create_job(actor, "script", {})
    names = [f"job-{job.pk}" for job in made]
    assert walk(idle_api, f"/v1/jobs?source_id=source-{folder}&order=asc") == names
    assert walk(idle_api, f"/v1/jobs?source_id=source-{folder}") == names[::-1]
    assert walk(idle_api, f"/v1/jobs?source_id=source-{folder}&ascending=true") == names
    assert walk(idle_api, f"/v1/jobs/active?source_id=source-{folder}") == names
    jobs.cancel_job(made[0])
    assert walk(idle_api, f"/v1/jobs?active=true&order=asc&source_id=source-{folder}") == names[1:]
    for bad in ("source_id=x", "after=x", "limit=-1", "order=up", f"after=job-{uuid.uuid4()}"):
        assert idle_api.get(f"/v1/jobs?{bad}").status in (404, 422)


def test_a_page_costs_as_many_queries_whatever_there_is(idle_api: Api, actor: Actor) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            from agents.job_selectors import list_jobs

            list_jobs(actor, subject=None, is_active=False, ascending=False, limit=50)
        return len(queries)

    before = cost()
    for _ in range(20):
        jobs.create_job(actor, "script", {})
    assert cost() == before == 1


def test_a_job_whose_worker_died_is_taken_up_again_and_given_up_after_three_times(
    idle_api: Api, actor: Actor, script: Script
) -> None:
    job = jobs.create_job(actor, "script", {})
    for attempt in (1, 2, 3):
        claimed = jobs.claim(job.pk)
        assert claimed is not None
        assert claimed.attempts == attempt
        assert jobs.claim(job.pk) is None  # another worker has it
        lose_worker(job)
        jobs.sweep()
    assert reload(job).status == JobStatus.FAILED
    assert "3 times" in reload(job).error
    assert script.given_up == [reload(job).error]
    assert idle_api.get(f"/v1/jobs/job-{job.pk}").json()["stop_reason"] == "error"


def test_a_lost_hand_over_is_made_again_once(idle_api: Api, actor: Actor) -> None:
    job = jobs.create_job(actor, "script", {})
    assert jobs.sweep() == []
    Job.objects.filter(pk=job.pk).update(due_at=timezone.now() - timedelta(seconds=10))
    assert jobs.sweep() == [job.pk]
    assert jobs.sweep() == []


def test_a_worker_that_lost_its_job_ends_nothing(
    idle_api: Api, actor: Actor, script: Script
) -> None:
    job = jobs.create_job(actor, "script", {})
    first = jobs.claim(job.pk)
    assert first is not None
    lose_worker(job)
    jobs.sweep()
    second = jobs.claim(job.pk)
    assert second is not None
    assert not jobs.complete(first)
    assert not jobs.fail(first, "late")
    assert not jobs.renew(first)
    assert script.given_up == []
    assert jobs.complete(second, {"by": "second"})
    assert reload(job).metadata == {"by": "second"}


def test_two_workers_run_a_job_once(idle_api: Api, actor: Actor, script: Script) -> None:
    job = jobs.create_job(actor, "script", {})

    def work(_: int) -> None:
        try:
            running.work(job.pk)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert script.calls == 1
    assert reload(job).status == JobStatus.COMPLETED


def test_cancel_ends_a_running_job_at_its_next_step(
    api: Api, script: Script, settings: Any
) -> None:
    started, go_on = threading.Event(), threading.Event()

    def act(context: JobContext) -> None:
        started.set()
        go_on.wait(10)
        context.progress(1, 2)
        raise AssertionError("it went on")

    script.action = act
    job = jobs.create_job(keyless_actor(), "script", {})
    assert started.wait(10)
    answer = api.patch(f"/v1/jobs/job-{job.pk}/cancel")
    assert answer.json()["status"] == "cancelled"
    go_on.set()
    wait_for(lambda: running._slots._value == running.JOBS_AT_ONCE)
    assert reload(job).status == JobStatus.CANCELLED
    assert script.given_up == ["The job was cancelled."]
    again = api.patch(f"/v1/jobs/job-{job.pk}/cancel")
    assert again.status == 409
    assert "ended already" in again.json()["detail"]
    assert api.delete(f"/v1/jobs/job-{job.pk}").json()["id"] == f"job-{job.pk}"
    assert api.get(f"/v1/jobs/job-{job.pk}").status == 404


def test_a_job_ends_with_the_reason_of_its_failure(
    idle_api: Api, actor: Actor, script: Script
) -> None:
    def refuse(context: JobContext) -> None:
        raise InvalidArgument("This is no PDF.")

    def break_(context: JobContext) -> None:
        raise KeyError("secret detail")

    for action, text in ((refuse, "This is no PDF."), (break_, "unexpected error")):
        script.action = action
        job = jobs.create_job(actor, "script", {})
        running.work(job.pk)
        assert reload(job).status == JobStatus.FAILED
        assert text in reload(job).error
        assert "secret" not in reload(job).error
    unknown = jobs.create_job(actor, "no_such_kind", {})
    running.work(unknown.pk)
    assert "no_such_kind" in reload(unknown).error


@pytest.mark.parametrize(
    "error", [Unavailable("Ollama is away."), ProviderError("llm_error", "busy", is_transient=True)]
)
def test_what_may_pass_is_tried_again_later(
    idle_api: Api, actor: Actor, script: Script, error: Exception
) -> None:
    def away(context: JobContext) -> None:
        raise error

    script.action = away
    job = jobs.create_job(actor, "script", {})
    running.work(job.pk)
    waiting = reload(job)
    assert waiting.status == JobStatus.CREATED
    assert waiting.due_at > timezone.now()
    running.work(job.pk)
    assert script.calls == 1  # not before it is due
    Job.objects.filter(pk=job.pk).update(due_at=timezone.now())
    script.action = lambda context: None
    running.work(job.pk)
    assert reload(job).status == JobStatus.COMPLETED


def test_a_worker_that_shuts_down_gives_its_job_back(
    idle_api: Api, actor: Actor, script: Script
) -> None:
    def act(context: JobContext) -> None:
        running.stop()
        context.progress(1, 2)

    script.action = act
    job = jobs.create_job(actor, "script", {})
    try:
        running.work(job.pk)
    finally:
        running._stopping.clear()
    assert reload(job).status == JobStatus.CREATED
    assert reload(job).attempts == 0


def test_the_lease_is_renewed_while_a_step_takes_long(
    idle_api: Api, actor: Actor, script: Script, settings: Any
) -> None:
    settings.CONFIG.values["SOUVERAINE_LEASE_SECONDS"], usual = (
        0.5,
        settings.CONFIG["SOUVERAINE_LEASE_SECONDS"],
    )

    def act(context: JobContext) -> None:
        first = reload(context.job).lease_expires_at
        wait_for(lambda: reload(context.job).lease_expires_at != first)

    script.action = act
    job = jobs.create_job(actor, "script", {})
    try:
        running.work(job.pk)
    finally:
        settings.CONFIG.values["SOUVERAINE_LEASE_SECONDS"] = usual
    assert reload(job).status == JobStatus.COMPLETED


def test_waiting_jobs_follow_one_another(idle_api: Api, actor: Actor, script: Script) -> None:
    made = [jobs.create_job(actor, "script", {}) for _ in range(5)]
    running.work(made[2].pk)
    assert {reload(job).status for job in made} == {JobStatus.COMPLETED}
