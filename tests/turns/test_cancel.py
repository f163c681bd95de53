"""Cancelling at each place of a turn: what the canceller was told, what is kept, that the next message works."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents.providers.openai import OpenAIProvider
from agents.providers.registry import override_providers
from agents.providers.transport import Endpoint
from agents.tools import registry
from conversations.models import Message, Run, RunStatus
from conversations.services import runs
from conversations.services.cancel import cancel_runs
from conversations.turn import sweeper
from conversations.wire.frames import base_frame, dump
from souveraine.errors import ProviderError
from souveraine.events import log
from souveraine.testing import cast
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Answer, Api, make_agent, wait_for
from tests.providers.wire import WireServer, as_json, delta, sse
from tests.turns.test_durability import accept, claim, frames, store_answer, texts

CANCELLED_END = b'data: {"message_type": "stop_reason", "stop_reason": "cancelled"}\n\n'
INSERT = Call("memory_insert", {"label": "human", "new_string": "x"})


class Sent:
    """A send in a thread of its own."""

    def __init__(self, api: Api, path: str, **body: Any) -> None:
        self.answer: Answer | None = None

        def post() -> None:
            self.answer = api.post(path, {"input": "go", "stream_tokens": True, **body})

        self._thread = threading.Thread(target=post)
        self._thread.start()

    def end(self) -> Answer:
        self._thread.join(20)
        assert self.answer is not None, "the answer did not end"
        return self.answer


def send(api: Api, agent: dict[str, Any], **body: Any) -> Sent:
    return Sent(api, f"/v1/agents/{agent['id']}/messages/stream", **body)


def cancel(api: Api, agent: dict[str, Any], **options: Any) -> Answer:
    return api.post(f"/v1/conversations/default/cancel?agent_id={agent['id']}", **options)


def assert_next_message_works(api: Api, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue("fine")
    answer = api.post(f"/v1/agents/{agent['id']}/messages", {"input": "next"})
    assert answer.json()["messages"][-1]["content"] == "fine"


@contextmanager
def held(monkeypatch: Any, where: str, real: Callable[..., Any]) -> Iterator[threading.Event]:
    """Hold the first call of a function; `reached` is set when it is there, and it goes on at the end."""
    reached, go_on = threading.Event(), threading.Event()

    def waiting(*args: Any, **kwargs: Any) -> Any:
        if not reached.is_set():
            reached.set()
            go_on.wait(20)
        return real(*args, **kwargs)

    monkeypatch.setattr(where, waiting)
    yield reached
    go_on.set()


@pytest.mark.parametrize("background", [False, True])
def test_the_stream_ends_as_on_the_old_server(
    api: Api, agent: dict[str, Any], provider: Any, background: bool
) -> None:
    provider.enqueue(Reply(text="one two three", error_after=2, hangs=True))
    sent = send(api, agent, background=background)
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 2)
    run = Run.objects.get()
    assert cancel(api, agent).json() == {f"run-{run.pk}": "cancelled"}
    done = b"data: [DONE]\n\n" if background else b""
    assert sent.end().body.endswith(b'"content":" two"}\n\n' + CANCELLED_END + done)
    followed = api.post(f"/v1/runs/run-{run.pk}/stream", {"starting_after": 3})
    assert followed.body == CANCELLED_END + b"data: [DONE]\n\n"


def test_partial_text_is_kept_and_marked(api: Api, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue(Reply(reasoning="hm", text="one two three", error_after=3, hangs=True))
    sent = send(api, agent, stream_tokens=False)
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 3)
    cancel(api, agent)
    streamed = [f for f in sent.end().frames() if f["message_type"] != "ping"]
    listed = api.get(f"/v1/agents/{agent['id']}/messages").json()[-2:]
    for shown in (streamed[:2], listed):
        assert [f.get("reasoning") or f["content"] for f in shown] == ["hm", "one two"]
        assert [f["_souveraine"] for f in shown] == [{"partial": True}] * 2
    assert_next_message_works(api, agent, provider)


def test_the_provider_sees_the_disconnect_within_two_seconds(api: Api) -> None:
    with WireServer() as server:
        server.on("/v1/models", as_json({"data": [{"id": "m"}]}))
        server.on("/v1/chat/completions", sse(delta(content="Hel"), done=False, hang=True))
        endpoint = Endpoint("openai", "OpenAI", f"{server.url}/v1", "URL", "KEY", api_key="sk")
        real = OpenAIProvider(endpoint, timeout_seconds=30, default_context_window=30000)
        with override_providers({"openai": real}):
            agent = make_agent(api, model="openai/m")
            sent = send(api, agent)
            assert server.sent_hang.wait(20)
            asked_at = time.monotonic()
            assert cancel(api, agent).status == 200
            assert server.disconnected.wait(20)
            assert server.disconnected_at - asked_at < 2
            assert sent.end().body.endswith(CANCELLED_END)


def test_a_lost_notice_only_costs_a_second(
    api: Api, agent: dict[str, Any], provider: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("conversations.services.cancel.publish", lambda *args: False)
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True))
    sent = send(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 1)
    asked_at = time.monotonic()
    cancel(api, agent)
    wait_for(lambda: provider.calls[0].is_closed_early)
    assert time.monotonic() - asked_at < 2
    sent.end()


def test_a_queued_run_ends_with_its_stream_although_there_is_no_worker(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    sent = send(idle_api, agent)
    run = wait_for(Run.objects.first)
    assert cancel(idle_api, agent).json() == {f"run-{run.pk}": "cancelled"}
    assert sent.end().body.endswith(CANCELLED_END)
    ended = Run.objects.get()
    assert (ended.status, ended.stream_closed) == (RunStatus.CANCELLED, True)
    assert runs.claim(run.pk, "late:1:x") is None
    counters = idle_api.get(f"/v1/agents/{agent['id']}").json()["_souveraine"]
    assert counters["message_count"] == 1


def test_a_dead_workers_run_is_ended_in_its_name(
    idle_api: Api, provider: Any, new_worker: Any
) -> None:
    agent = make_agent(idle_api)
    run = claim(accept(idle_api, agent))
    step = uuid.uuid4()
    pieces = [("reasoning_message", "reasoning", "hm")]
    pieces += [("assistant_message", "content", word) for word in ("one", " two")]
    lost = uuid.uuid4()
    for kind, key, text in pieces:
        frame = base_frame(kind, message_id=lost, date=timezone.now(), step_id=step)
        log.append(run.pk, run.fence, [("frame", dump({**frame, key: text}))])
    assert cancel(idle_api, agent).json() == {f"run-{run.pk}": "cancelled"}
    sweeper.sweep()
    assert Run.objects.get().status == RunStatus.RUNNING, "a worker has five seconds to answer"
    Run.objects.update(cancel_requested_at=timezone.now() - timedelta(seconds=6))
    sweeper.sweep()
    ended = Run.objects.get()
    assert (ended.status, ended.stop_reason) == (RunStatus.CANCELLED, "cancelled")
    kept = Message.objects.get(role="assistant")
    assert (kept.id, kept.text, kept.reasoning, kept.status) == (lost, "one two", "hm", "partial")
    assert [e.kind for e in log.read(run.pk)][-2:] == ["frame", "end"]
    with pytest.raises(log.Fenced):
        log.append(run.pk, run.fence, [("frame", b"{}")])
    after = accept(idle_api, agent, "next")
    new_worker().execute(after.pk)
    assert texts(after)[-1] == ("assistant", "Hello there.")


def test_a_run_that_is_queued_again_keeps_what_its_dead_worker_had_streamed(
    idle_api: Api, new_worker: Any
) -> None:
    agent = make_agent(idle_api)
    run = claim(accept(idle_api, agent))
    lost = uuid.uuid4()
    frame = base_frame(
        "assistant_message", message_id=lost, date=timezone.now(), step_id=uuid.uuid4()
    )
    log.append(run.pk, run.fence, [("frame", dump({**frame, "content": "one two"}))])
    Run.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert sweeper.sweep() == [run.pk]
    assert cancel(idle_api, agent).json() == {f"run-{run.pk}": "cancelled"}
    assert Run.objects.get().status == RunStatus.CANCELLED
    assert texts(run)[-1] == ("assistant", "one two")
    kinds = [f["message_type"] for f in frames(run)]
    assert kinds == ["assistant_message", "stop_reason"], "nothing is retracted"
    new_worker().execute(run.pk)
    assert len(frames(run)) == 2


def test_a_dead_workers_open_calls_are_answered(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    run = claim(accept(idle_api, agent))
    store_answer(run, calls=[{"id": "c1", "name": INSERT.name, "arguments": INSERT.text}])
    cancel(idle_api, agent)
    Run.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert sweeper.sweep() == []
    assert texts(run)[-1] == ("tool", "The call was cancelled before it returned.")
    assert Run.objects.get().status == RunStatus.CANCELLED


def test_cancelled_between_claim_and_start(
    api: Api, agent: dict[str, Any], provider: Any, worker: Any, monkeypatch: Any
) -> None:
    real = runs.claim

    def claimed_then_cancelled(run_id: uuid.UUID, owner: str) -> Any:
        run = real(run_id, owner)
        cancel_runs([run])
        wait_for(lambda: worker._claiming.get(run_id))
        return run

    monkeypatch.setattr(runs, "claim", claimed_then_cancelled)
    assert send(api, agent).end().types() == ["stop_reason"]
    assert Run.objects.get().status == RunStatus.CANCELLED
    assert provider.requests == []
    monkeypatch.setattr(runs, "claim", real)
    assert_next_message_works(api, agent, provider)


def test_cancelled_during_prepare(
    api: Api, agent: dict[str, Any], provider: Any, monkeypatch: Any
) -> None:
    from agents.selectors import attached_tools

    with held(monkeypatch, "conversations.turn.runner.attached_tools", attached_tools) as reached:
        sent = send(api, agent)
        assert reached.wait(20)
        cancel(api, agent)
        assert sent.end().types() == ["stop_reason"]
    assert provider.requests == []
    assert_next_message_works(api, agent, provider)


def test_cancelled_during_back_off(
    api: Api, agent: dict[str, Any], provider: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("conversations.turn.model_call.FIRST_RETRY_SECONDS", 60)
    provider.enqueue(
        Reply(error=ProviderError("llm_error", "503", is_transient=True), error_after=0)
    )
    sent = send(api, agent)
    wait_for(lambda: provider.calls)
    cancel(api, agent)
    assert sent.end().types() == ["stop_reason"]
    assert Run.objects.get().status == RunStatus.CANCELLED
    assert_next_message_works(api, agent, provider)


def test_cancelled_during_a_tool_call_that_returns_later(
    api: Api, agent: dict[str, Any], provider: Any, monkeypatch: Any
) -> None:
    builtin = registry.find("memory_insert")
    assert builtin is not None
    reached, go_on, returned = threading.Event(), threading.Event(), threading.Event()

    def slow(context: Any, **arguments: Any) -> str:
        reached.set()
        go_on.wait(20)
        returned.set()
        return "late"

    monkeypatch.setitem(registry._TOOLS, "memory_insert", replace(builtin, run=slow))
    provider.enqueue(Reply(tool_calls=[INSERT, INSERT]))
    sent = send(api, agent)
    assert reached.wait(20)
    cancel(api, agent)
    answer = sent.end()
    go_on.set()
    assert returned.wait(20)
    assert answer.types()[-3:] == ["tool_return_message", "tool_return_message", "stop_reason"]
    text = "The call was cancelled before it returned."
    assert [m.text for m in Message.objects.filter(role="tool")] == [text, text]
    assert_next_message_works(api, agent, provider)


@pytest.mark.parametrize("stored", ["_store", "_finish"])
def test_cancelled_while_an_outcome_is_being_stored(
    api: Api, agent: dict[str, Any], provider: Any, monkeypatch: Any, stored: str
) -> None:
    from conversations.turn import model_call, tool_calls

    module = model_call if stored == "_store" else tool_calls
    calls = [] if stored == "_store" else [INSERT]
    provider.enqueue(Reply(text="whole answer", tool_calls=calls))
    where = f"{module.__name__}.{stored}"
    with held(monkeypatch, where, getattr(module, stored)) as reached:
        sent = send(api, agent, stream_tokens=False)
        assert reached.wait(20)
        cancel(api, agent)
        answer = sent.end()
    rows = [(m.role, m.text) for m in Message.objects.filter(sequence__gt=2).order_by("sequence")]
    assert rows[0] == ("assistant", "whole answer")
    assert len(rows) == 1 + len(calls), "stored once"
    shown = [f.get("content") or f.get("tool_return") for f in answer.frames()]
    assert [text for text in shown if text] == [text for _, text in rows]
    assert answer.types()[-1] == "stop_reason"
    assert_next_message_works(api, agent, provider)


def test_who_was_told_cancelled_finds_the_run_cancelled(
    api: Api, agent: dict[str, Any], provider: Any, monkeypatch: Any
) -> None:
    from conversations.services.usage import load_usage

    provider.enqueue("whole answer")
    with held(monkeypatch, "conversations.turn.runner.load_usage", load_usage) as reached:
        sent = send(api, agent)
        assert reached.wait(20)
        assert cancel(api, agent).status == 200
    assert sent.end().body.endswith(CANCELLED_END)
    assert Run.objects.get().status == RunStatus.CANCELLED
    assert Message.objects.get(role="assistant").text == "whole answer"
    assert cancel(api, agent).status == 409
    assert_next_message_works(api, agent, provider)


def test_two_cancels_at_once_end_the_run_once(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True))
    sent = send(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 1)
    run = Run.objects.get()
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(cancel(api, agent))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert {a.status for a in answers} <= {200, 409}
    assert {json.dumps(a.json()) for a in answers if a.status == 200} == {
        json.dumps({f"run-{run.pk}": "cancelled"})
    }
    assert sent.end().body.count(CANCELLED_END) == 1
    kinds = [f["message_type"] for f in frames(run)]
    assert kinds.count("stop_reason") == 1


def test_only_named_live_runs_of_the_agent_are_cancelled(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True))
    sent = send(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 1)
    live = f"run-{Run.objects.get().pk}"
    charlie = cast.charlie()
    theirs = api.post(
        "/v1/agents", {"name": "mine", "model": "fake/fake-model"}, headers=charlie.headers
    ).json()
    path = "/v1/agents/{}/messages/cancel"
    unknown = f"run-{uuid.uuid4()}"
    assert api.post(path.format(agent["id"]), {"run_ids": [unknown]}).json() == {}
    foreign = api.post(path.format(theirs["id"]), {"run_ids": [live]}, headers=charlie.headers)
    assert (foreign.status, foreign.json()) == (200, {})
    hidden = api.post(path.format(agent["id"]), {"run_ids": [live]}, headers=charlie.headers)
    assert hidden.status == 404
    assert api.post(path.format(agent["id"]), {"run_ids": ["nonsense"]}).status == 422
    assert Run.objects.get().cancel_requested_at is None
    named = api.post(path.format(agent["id"]), {"run_ids": [unknown, live]})
    assert named.json() == {live: "cancelled"}
    sent.end()
