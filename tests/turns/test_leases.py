"""Who may write for a run, and for how long: clocks, restarts, stalls, slow and hanging databases."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from conversations.models import Run, RunStatus
from conversations.services import dispatch, runs
from conversations.services.cancel import cancel_runs
from conversations.turn import database
from conversations.wire.frames import base_frame, dump
from souveraine.events import log
from souveraine.events.log import Fenced
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent, wait_for
from tests.turns.test_durability import accept, claim, frames, take_over


@pytest.fixture
def calm(idle_api: Api, new_worker: Any) -> Any:
    return idle_api, make_agent(idle_api), new_worker


def cancel(run: Run) -> None:
    cancel_runs([run])
    wait_for(lambda: Run.objects.get(pk=run.pk).status == RunStatus.CANCELLED)


def test_restarts_of_the_worker_are_no_failed_attempts(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = accept(api, agent)
    for _ in range(5):
        claim(Run.objects.get(pk=run.pk))
        assert runs.release_owner("dead:", is_graceful=True) == [run.pk]
    new_worker().execute(run.pk)
    assert Run.objects.get(pk=run.pk).status == RunStatus.COMPLETED


def test_a_run_that_gets_a_step_further_has_all_its_attempts_again(
    calm: Any, provider: Any
) -> None:
    api, agent, new_worker = calm
    run = accept(api, agent)
    for _ in range(2):
        claim(Run.objects.get(pk=run.pk))
        runs.release_owner("dead:")
    provider.enqueue(
        Reply(tool_calls=[Call("conversation_search", {"query": "x"})]),
        "done",
    )
    assert Run.objects.get(pk=run.pk).attempts == 2
    new_worker().execute(run.pk)
    assert Run.objects.get(pk=run.pk).attempts == 1


def test_a_host_whose_clock_is_ahead_takes_no_runs_from_others(
    calm: Any, provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, agent, _ = calm
    run = claim(accept(api, agent))
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(hours=1))
    assert run.pk not in runs.release_expired()
    assert runs.heartbeat(run.owner, [run.pk]) == {run.pk: False}
    monkeypatch.setattr(timezone, "now", lambda: real() - timedelta(hours=1))
    assert run.pk not in runs.release_expired()
    assert runs.is_held(run.pk, run.owner, run.fence)


def test_what_a_stalled_worker_still_holds_cannot_come_in_after_the_take_over(
    calm: Any, provider: Any
) -> None:
    api, agent, new_worker = calm
    stale = claim(accept(api, agent))
    refused = []

    def late(request: Any) -> None:
        try:
            log.append(stale.pk, stale.fence, [("frame", b"{}")])
        except Fenced as exc:
            refused.append(exc)

    provider.enqueue(Reply(text="fine", before=late))
    run = take_over(new_worker, stale)
    assert refused, "before the new owner has streamed anything"
    assert run.status == RunStatus.COMPLETED


def test_text_of_a_claim_that_a_power_cut_took_back_is_retracted(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = accept(api, agent)
    frame = {
        **base_frame("assistant_message", message_id=uuid.uuid4(), date=timezone.now()),
        "content": "Hel",
    }
    log.append(run.pk, 1, [("frame", dump(frame))])
    new_worker().execute(run.pk)
    assert [f["message_type"] for f in frames(run)][:2] == [
        "assistant_message",
        "souveraine_retracted",
    ]


def test_a_worker_that_had_stalled_and_takes_its_own_run_anew_keeps_its_lease(
    api: Api, agent: dict[str, Any], provider: Any, worker: Any
) -> None:
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True))
    provider.enqueue(Reply(text="three four", error_after=1, hangs=True))
    run = accept(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent == 1)
    assert runs.release_owner(worker.owner) == [run.pk]
    dispatch.enqueue(run.pk)
    wait_for(lambda: len(provider.calls) == 2 and provider.calls[1].sent == 1)
    wait_for(lambda: provider.calls[0].is_closed_early)
    assert list(worker._live) == [run.pk], "the first one's end must not take it out"
    cancel(run)


LEASE_SECONDS = 1.0


@pytest.fixture
def short_lease(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.CONFIG.values, "SOUVERAINE_LEASE_SECONDS", LEASE_SECONDS)


def test_slow_calls_of_turns_do_not_keep_leases_from_being_renewed(
    short_lease: None, api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True))
    run = accept(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent == 1)
    is_over = threading.Event()
    slow = [database._executor.submit(is_over.wait, 20) for _ in range(database.DATABASE_THREADS)]
    time.sleep(LEASE_SECONDS * 1.5)
    held = Run.objects.get(pk=run.pk)
    is_over.set()
    assert held.lease_expires_at > timezone.now()
    assert all(call.result() for call in slow)
    assert not provider.calls[0].is_closed_early
    cancel(run)


def test_a_worker_whose_database_hangs_ends_its_turns_before_others_may_take_them(
    short_lease: None,
    api: Api,
    agent: dict[str, Any],
    provider: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True))
    accept(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent == 1)
    is_over = threading.Event()
    monkeypatch.setattr(runs, "heartbeat", lambda owner, run_ids: is_over.wait(20))
    try:
        wait_for(lambda: provider.calls[0].is_closed_early, LEASE_SECONDS * 1.5)
    finally:
        is_over.set()


def test_a_background_duty_that_fails_is_taken_up_again(
    calm: Any, provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conversations.turn import worker as module

    _, _, new_worker = calm
    sweeps = []

    def sweep() -> list[uuid.UUID]:
        sweeps.append(time.monotonic())
        if len(sweeps) == 1:
            raise ValueError("a bug")
        return []

    monkeypatch.setattr(module, "sweep", sweep)
    new_worker()
    wait_for(lambda: len(sweeps) > 1)
