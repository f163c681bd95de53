"""`"when_busy": "queue"`: sends that wait, their order, who activates them, and what ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from conversations.models import Conversation, Message, Run, RunStatus
from conversations.services import queueing, runs
from conversations.turn import sweeper
from souveraine.testing.fake_provider import Reply
from tests.conftest import Answer, Api, make_agent, wait_for
from tests.turns.test_durability import accept, claim, texts

STATUSES = ("status", "first_sequence")


class Held:
    """A reply that waits until it is let go."""

    def __init__(self, provider: Any, text: str) -> None:
        self.go_on, self.reached = threading.Event(), threading.Event()

        def reply(request: Any) -> Reply:
            self.reached.set()
            self.go_on.wait(20)
            return Reply(text=text)

        provider.enqueue(reply)


@pytest.fixture
def post() -> Callable[..., dict[str, Answer]]:
    """Sends in threads; the answers come into one dict, in the order of their ends."""
    threads: list[threading.Thread] = []
    answers: dict[str, Answer] = {}

    def start(api: Api, agent: dict[str, Any], text: str, **body: Any) -> dict[str, Answer]:
        def run() -> None:
            path = f"/v1/agents/{agent['id']}/messages"
            answers[text] = api.post(path, {"input": text, "when_busy": "queue", **body})

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return answers

    yield start  # type: ignore[misc]
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a send was never answered"


def waiting(count: int) -> Callable[[], bool]:
    return lambda: Run.objects.filter(status=RunStatus.WAITING).count() == count


def queue(api: Api, agent: dict[str, Any], text: str = "later") -> Run:
    run = accept(api, agent, text, when_busy="queue")
    assert run.status == RunStatus.WAITING
    return run


def end(run: Run, stop_reason: str = "end_turn") -> None:
    assert runs.finish(run, stop_reason=stop_reason, usage={})


def test_waiting_sends_run_in_order_after_the_live_one(
    api: Api, agent: dict[str, Any], provider: Any, post: Any
) -> None:
    first = Held(provider, "answer 1")
    provider.enqueue("answer 2", "answer 3")
    answers = post(api, agent, "one")
    assert first.reached.wait(20)
    post(api, agent, "two", streaming=True)
    wait_for(waiting(1))
    post(api, agent, "three")
    wait_for(waiting(2))
    assert api.post(f"/v1/agents/{agent['id']}/messages", {"input": "no"}).status == 409
    listed = api.get("/v1/runs?active=true").json()
    assert [run["status"] for run in listed] == ["created", "created", "running"]
    assert len(api.get("/v1/runs?statuses=created").json()) == 2
    assert [m.text for m in Message.objects.filter(role="user")] == ["one"]
    first.go_on.set()
    wait_for(lambda: len(answers) == 3)
    run = Run.objects.first()
    assert run is not None
    said = ["one", "answer 1", "two", "answer 2", "three", "answer 3"]
    assert [text for _, text in texts(run)] == said
    assert answers["two"].types() == [
        "assistant_message",
        "stop_reason",
        "usage_statistics",
        "[DONE]",
    ]
    assert answers["three"].json()["messages"][0]["content"] == "answer 3"
    assert list(Run.objects.order_by("created_at").values_list(*STATUSES)) == [
        ("completed", 2),
        ("completed", 4),
        ("completed", 6),
    ]
    assert not any(queueing.MESSAGES in run.request for run in Run.objects.all())


@pytest.mark.parametrize("end_of_the_first", ["fails", "is cancelled", "loses its worker"])
def test_however_the_run_before_ends_the_next_one_gets_its_turn(
    idle_api: Api, provider: Any, new_worker: Any, end_of_the_first: str
) -> None:
    agent = make_agent(idle_api)
    first = accept(idle_api, agent, "one")
    second = queue(idle_api, agent)
    if end_of_the_first == "fails":
        end(claim(first), "error")
    elif end_of_the_first == "is cancelled":
        idle_api.post(f"/v1/agents/{agent['id']}/messages/cancel", {"run_ids": [f"run-{first.pk}"]})
    else:
        Run.objects.filter(pk=claim(first).pk).update(
            attempts=3, lease_expires_at=timezone.now() - timedelta(seconds=1)
        )
        sweeper.sweep()
    assert Run.objects.get(pk=second.pk).status == RunStatus.QUEUED
    new_worker().execute(second.pk)
    assert texts(second)[-2:] == [("user", "later"), ("assistant", "Hello there.")]


def test_nothing_runs_while_an_approval_is_pending(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    first = claim(accept(idle_api, agent, "one"))
    second = queue(idle_api, agent)
    Conversation.objects.update(pending_message_id=second.pk)
    end(first, "requires_approval")
    sweeper.sweep()
    assert Run.objects.get(pk=second.pk).status == RunStatus.WAITING
    Conversation.objects.update(pending_message_id=None)
    threads = [threading.Thread(target=sweep_in_thread) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert Run.objects.get(pk=second.pk).status == RunStatus.QUEUED
    assert [m.text for m in Message.objects.filter(role="user")] == ["one", "later"]


def sweep_in_thread() -> None:
    from django.db import connections

    try:
        queueing.activate_stranded()
    finally:
        connections.close_all()


def test_a_send_while_an_approval_is_pending_waits_and_the_decision_overtakes_it(
    idle_api: Api,
) -> None:
    agent = make_agent(idle_api)
    end(claim(accept(idle_api, agent, "one")), "requires_approval")
    conversation = Conversation.objects.get()
    Conversation.objects.update(pending_message_id=Run.objects.get().pk)
    waits = queue(idle_api, agent)
    decision = Run.objects.create(
        conversation=conversation,
        agent_id=waits.agent_id,
        first_sequence=waits.first_sequence + 5,
        event_number=9,
    )
    busy = idle_api.post(f"/v1/agents/{agent['id']}/messages", {"input": "x"})
    assert busy.status == 409
    Conversation.objects.update(pending_message_id=None)
    busy = idle_api.post(f"/v1/agents/{agent['id']}/messages", {"input": "x"})
    assert busy.json()["run_id"] == f"run-{decision.pk}", "the live one is named"
    path = f"/v1/conversations/default/cancel?agent_id={agent['id']}"
    assert set(idle_api.post(path).json()) == {f"run-{decision.pk}", f"run-{waits.pk}"}
    assert Run.objects.get(pk=waits.pk).event_number is None, "it never got its turn"


def test_one_that_waits_is_followed_and_cancelled(idle_api: Api, post: Any) -> None:
    agent = make_agent(idle_api)
    accept(idle_api, agent, "one")
    answers = post(idle_api, agent, "two", streaming=True)
    wait_for(waiting(1))
    third = queue(idle_api, agent, "three")
    run = Run.objects.exclude(pk=third.pk).filter(status=RunStatus.WAITING).first()
    assert run is not None
    path = f"/v1/agents/{agent['id']}/messages/cancel"
    name = f"run-{run.pk}"
    assert idle_api.post(path, {"run_ids": [name]}).json() == {name: "cancelled"}
    wait_for(lambda: answers)
    assert answers["two"].types() == ["stop_reason"]
    assert idle_api.post(f"/v1/runs/{name}/stream", {}).types() == ["stop_reason", "[DONE]"]
    conversation = f"/v1/conversations/default/cancel?agent_id={agent['id']}"
    assert len(idle_api.post(conversation).json()) == 2, "the live one, and what waits behind it"
    assert {run.status for run in Run.objects.all()} == {RunStatus.CANCELLED}
    assert [m.text for m in Message.objects.filter(role="user")] == ["one"]
    assert Run.objects.get(pk=third.pk).stream_closed


def test_the_same_otid_waits_once_and_is_found_by_it(idle_api: Api, post: Any) -> None:
    agent = make_agent(idle_api)
    accept(idle_api, agent, "one")
    message = {"role": "user", "content": "two", "otid": "x1"}
    for name in ("a", "b"):
        post(idle_api, agent, name, input=None, messages=[message], streaming=True)
    wait_for(waiting(1))
    run = Run.objects.get(status=RunStatus.WAITING)
    followed: list[Answer] = []
    path = f"/v1/conversations/default/stream?agent_id={agent['id']}"
    follower = threading.Thread(target=lambda: followed.append(idle_api.post(path, {"otid": "x1"})))
    follower.start()
    idle_api.post(f"/v1/conversations/default/cancel?agent_id={agent['id']}")
    follower.join(20)
    assert followed[0].frames()[0]["run_id"] == f"run-{run.pk}"
    late = idle_api.post(path, {"otid": "x1"})
    assert late.types() == ["stop_reason", "[DONE]"], "found although its message was never said"
    assert Run.objects.count() == 2


def test_a_full_queue_says_how_full_it_is(idle_api: Api, settings: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(settings.CONFIG.values, "SOUVERAINE_QUEUE_LIMIT", 2)
    agent = make_agent(idle_api)
    for text in ("one", "two", "three"):
        accept(idle_api, agent, text, when_busy="queue")
    full = idle_api.post(
        f"/v1/agents/{agent['id']}/messages", {"input": "four", "when_busy": "queue"}
    )
    assert full.status == 409
    assert full.headers["x-should-retry"] == "false"
    body = full.json()
    assert (body["code"], body["waiting"], body["limit"]) == ("QUEUE_FULL", 2, 2)
    assert Run.objects.count() == 3


@pytest.mark.parametrize("what", ["agent", "conversation"])
def test_deleting_ends_what_waits(idle_api: Api, post: Any, what: str) -> None:
    agent = make_agent(idle_api)
    accept(idle_api, agent, "one")
    answers = post(idle_api, agent, "two", streaming=True)
    wait_for(waiting(1))
    conversation = Conversation.objects.get()
    path = "agents/" + agent["id"] if what == "agent" else f"conversations/conv-{conversation.pk}"
    assert idle_api.delete(f"/v1/{path}").status == 200
    wait_for(lambda: answers)
    assert answers["two"].types() == ["stop_reason"]
    left = Run.objects.filter(status__in=(RunStatus.WAITING, RunStatus.QUEUED))
    assert not left.exists()


def test_a_conversation_deleted_by_a_dying_process_keeps_nothing_waiting(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    accept(idle_api, agent, "one")
    second = queue(idle_api, agent)
    Conversation.objects.update(deleted_at=timezone.now())
    runs.cancel_queued(Run.objects.get(status=RunStatus.QUEUED))
    assert Run.objects.get(pk=second.pk).status == RunStatus.CANCELLED


def test_without_redis_nothing_is_left_waiting(idle_api: Api, monkeypatch: Any) -> None:
    from redis.exceptions import ConnectionError as RedisConnectionError

    agent = make_agent(idle_api)
    accept(idle_api, agent, "one")

    def away(*args: Any, **kwargs: Any) -> None:
        raise RedisConnectionError("away")

    monkeypatch.setattr("conversations.services.accept.append", away)
    body = {"input": "two", "when_busy": "queue"}
    assert idle_api.post(f"/v1/agents/{agent['id']}/messages", body).status == 503
    assert Run.objects.count() == 1


def test_four_sends_at_once_give_one_answer_and_three_refusals(
    api: Api, agent: dict[str, Any], provider: Any, post: Any
) -> None:
    held = Held(provider, "yes")
    answers: dict[str, Answer] = {}
    for name in "abcd":
        answers = post(api, agent, name, when_busy="reject")
    wait_for(lambda: len(answers) == 3)
    assert held.reached.wait(20)
    refused = [answer.json() for answer in answers.values()]
    run = Run.objects.get()
    assert {body["run_id"] for body in refused} == {f"run-{run.pk}"}
    assert all("when_busy" in body["hint"] for body in refused)
    held.go_on.set()
    wait_for(lambda: len(answers) == 4)
    assert sorted(answer.status for answer in answers.values()) == [200, 409, 409, 409]
    accepted = next(name for name, answer in answers.items() if answer.status == 200)
    assert texts(run) == [("user", accepted), ("assistant", "yes")]
