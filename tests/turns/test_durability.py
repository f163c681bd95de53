"""Leases, fences, journal, sweeper: each transition as a crash leaves it, then taken over."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from conversations.models import (
    Checkpoint,
    CheckpointWrite,
    Conversation,
    Message,
    Run,
    RunStatus,
    ToolCall,
)
from conversations.services import runs
from conversations.turn import sweeper
from conversations.turn.tool_calls import UNKNOWN_OUTCOME
from souveraine.events import log
from souveraine.events.log import Fenced
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent, wait_for


def accept(api: Api, agent: dict[str, Any], message: Any = "hello", **options: Any) -> Run:
    """Store a message and its run without anybody taking it up."""
    from agents.actor import keyless_actor
    from conversations.composition import server
    from conversations.services.accept import IncomingMessage, TurnOptions

    actor = keyless_actor()
    found = server().inventory.get_agent(actor, uuid.UUID(agent["id"].removeprefix("agent-")))
    conversation = server().sessions.default_conversation(actor, found)
    accepted = server().sessions.accept_turn(
        actor,
        conversation,
        [IncomingMessage("user", message) if isinstance(message, str) else message],
        TurnOptions(stream_tokens=True, **options),
    )
    return accepted.run


def claim(run: Run, owner: str = "dead:1:x") -> Run:
    claimed = runs.claim(run.pk, owner)
    assert claimed is not None
    return claimed


def store_answer(run: Run, text: str = "", calls: list[dict[str, str]] | None = None) -> Message:
    """Store an assistant message as a model call of `run` would have."""
    conversation = Conversation.objects.get(pk=run.conversation_id)
    conversation.last_sequence += 1
    conversation.save()
    return Message.objects.create(
        conversation=conversation,
        agent_id=run.agent_id,
        sequence=conversation.last_sequence,
        role="assistant",
        text=text,
        tool_calls=calls or [],
        run=run,
        step_id=uuid.uuid4(),
    )


def take_over(new_worker: Any, run: Run) -> Run:
    """Let the lease run out, sweep, and run what is queued to its end."""
    Run.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert sweeper.sweep() == [run.pk]
    new_worker().execute(run.pk)
    return Run.objects.get(pk=run.pk)


def texts(run: Run) -> list[tuple[str, str]]:
    rows = Message.objects.filter(conversation_id=run.conversation_id, sequence__gt=1).order_by(
        "sequence"
    )
    return [(m.role, m.text) for m in rows]


def frames(run: Run) -> list[dict[str, Any]]:
    import json

    return [json.loads(e.data) for e in log.read(run.pk) if e.kind == "frame"]


@pytest.fixture
def calm(idle_api: Api, new_worker: Any) -> Any:
    return idle_api, make_agent(idle_api), new_worker


def test_a_run_nobody_claimed_is_handed_over_again(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = accept(api, agent)
    assert sweeper.sweep() == []
    Run.objects.filter(pk=run.pk).update(enqueued_at=timezone.now() - timedelta(minutes=1))
    assert sweeper.sweep() == [run.pk]
    assert sweeper.sweep() == [], "not again at once"
    new_worker().execute(run.pk)
    assert texts(run) == [("user", "hello"), ("assistant", "Hello there.")]


def test_a_second_delivery_finds_nothing_to_claim(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = accept(api, agent)
    worker = new_worker()
    worker.execute(run.pk)
    worker.execute(run.pk)
    new_worker().execute(run.pk)
    assert len(provider.requests) == 1
    assert texts(run) == [("user", "hello"), ("assistant", "Hello there.")]


def test_killed_after_claim(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = take_over(new_worker, claim(accept(api, agent)))
    assert (run.status, run.attempts, run.fence) == (RunStatus.COMPLETED, 1, 2)
    assert texts(run) == [("user", "hello"), ("assistant", "Hello there.")]


def test_killed_in_mid_stream_retracts_what_was_not_stored(calm: Any, provider: Any) -> None:
    from conversations.wire.frames import base_frame, dump

    api, agent, new_worker = calm
    run = claim(accept(api, agent))
    lost = uuid.uuid4()
    frame = {
        **base_frame("assistant_message", message_id=lost, date=timezone.now()),
        "content": "Hel",
    }
    log.append(run.pk, run.fence, [("frame", dump(frame))])
    run = take_over(new_worker, run)
    kinds = [(f["message_type"], f.get("id") == f"message-{lost}") for f in frames(run)]
    assert kinds[0] == ("assistant_message", True)
    assert kinds[1] == ("souveraine_retracted", True)
    assert not any(is_lost for _, is_lost in kinds[2:])


def test_killed_after_the_answer_was_stored_asks_no_second_time_and_streams_the_rest(
    calm: Any, provider: Any
) -> None:
    from conversations.wire.frames import base_frame, dump

    api, agent, new_worker = calm
    run = claim(accept(api, agent))
    answer = store_answer(run, "whole answer")
    frame = {
        **base_frame("assistant_message", message_id=answer.id, date=timezone.now()),
        "content": "whole",
    }
    log.append(run.pk, run.fence, [("frame", dump(frame))])
    run = take_over(new_worker, run)
    assert provider.requests == []
    assert run.status == RunStatus.COMPLETED
    assert texts(run) == [("user", "hello"), ("assistant", "whole answer")]
    shown = "".join(f["content"] for f in frames(run) if f["message_type"] == "assistant_message")
    assert shown == "whole answer"


def test_half_a_tool_call_is_retracted_and_streamed_whole(calm: Any, provider: Any) -> None:
    from conversations.wire.frames import base_frame, dump

    api, agent, new_worker = calm
    run = claim(accept(api, agent))
    answer = store_answer(run, "Looking.", calls=[INSERT, {**INSERT, "id": "c2"}])
    base = base_frame("tool_call_message", message_id=answer.id, date=timezone.now())
    delta = {"name": "memory_insert", "tool_call_id": "c1"}
    log.append(
        run.pk, run.fence, [("frame", dump({**base, "tool_call": delta, "tool_calls": delta}))]
    )
    found = frames(take_over(new_worker, run))
    assert [f["message_type"] for f in found[:4]] == [
        "tool_call_message",
        "souveraine_retracted",
        "assistant_message",
        "tool_call_message",
    ]
    assert [c["tool_call_id"] for c in found[3]["tool_calls"]] == ["c1", "c2"]


def test_a_stream_that_redis_has_lost_is_whole_again_at_its_end(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    from souveraine.events.connection import sync_client

    provider.enqueue(Reply(text="one two three four", delay_seconds=0.1))
    run = accept(api, agent)
    wait_for(lambda: len(log.read(run.pk)) >= 3)
    sync_client().delete(log.stream_key(run.pk), log.meta_key(run.pk))
    wait_for(lambda: Run.objects.get(pk=run.pk).stream_closed)
    found = frames(run)
    kinds = [f["message_type"] for f in found]
    assert kinds[-4:] == [
        "souveraine_retracted",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]
    assert found[-3]["content"] == "one two three four"
    assert found[-4]["id"] == found[-3]["id"] == found[0]["id"]


INSERT = {"id": "c1", "name": "memory_insert", "arguments": '{"label": "human", "new_string": "x"}'}


def test_killed_before_a_tool_call_runs_it_once(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = claim(accept(api, agent))
    store_answer(run, calls=[INSERT])
    run = take_over(new_worker, run)
    assert (
        api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"]
        == "Name: Bob\nx"
    )
    assert [role for role, _ in texts(run)] == ["user", "assistant", "tool", "assistant"]


def test_killed_in_a_tool_call_with_effects_tells_the_model_that_the_outcome_is_unknown(
    calm: Any, provider: Any
) -> None:
    api, agent, new_worker = calm
    run = claim(accept(api, agent))
    answer = store_answer(run, calls=[INSERT])
    ToolCall.objects.create(
        conversation_id=run.conversation_id,
        message_id=answer.id,
        position=0,
        name="memory_insert",
        state="started",
    )
    run = take_over(new_worker, run)
    assert (
        api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"] == "Name: Bob"
    )
    assert ("tool", UNKNOWN_OUTCOME) in texts(run)


def test_killed_in_an_idempotent_tool_call_runs_it_again(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = claim(accept(api, agent))
    call = {"id": "c1", "name": "conversation_search", "arguments": '{"query": "hello"}'}
    answer = store_answer(run, calls=[call])
    ToolCall.objects.create(
        conversation_id=run.conversation_id,
        message_id=answer.id,
        position=0,
        name=call["name"],
        state="started",
    )
    run = take_over(new_worker, run)
    assert "hello" in dict(texts(run))["tool"]


def test_killed_between_parallel_calls_runs_only_the_open_one(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = claim(accept(api, agent))
    second = {
        **INSERT,
        "arguments": '{"label": "persona", "new_string": "y"}',
    }  # the provider repeats the id
    answer = store_answer(run, calls=[INSERT, {**second, "id": "c2"}])
    ToolCall.objects.create(
        conversation_id=run.conversation_id,
        message_id=answer.id,
        position=0,
        name="memory_insert",
        state="returned",
    )
    conversation = Conversation.objects.get(pk=run.conversation_id)
    Message.objects.create(
        conversation=conversation,
        agent_id=run.agent_id,
        sequence=conversation.last_sequence + 1,
        role="tool",
        text="done",
        tool_call_id="c1",
        name="memory_insert",
        status="success",
        run=run,
    )
    Conversation.objects.filter(pk=conversation.pk).update(
        last_sequence=conversation.last_sequence + 1
    )
    take_over(new_worker, run)
    assert (
        api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"] == "Name: Bob"
    )
    assert (
        api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/persona").json()["value"]
        == "I am.\ny"
    )
    returns = [m.call_id for m in map(_as_call, provider.requests[0].messages) if m.call_id]
    assert returns == ["c1", "c2"]


def _as_call(message: Any) -> Any:
    class Found:
        call_id = message.tool_call_id

    return Found


def test_deleting_all_checkpoints_in_mid_turn_changes_nothing(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = claim(accept(api, agent))
    store_answer(run, calls=[INSERT])
    Checkpoint.objects.all().delete()
    CheckpointWrite.objects.all().delete()
    run = take_over(new_worker, run)
    assert [role for role, _ in texts(run)] == ["user", "assistant", "tool", "assistant"]
    assert Checkpoint.objects.filter(thread=str(run.conversation_id)).exists()


def test_killed_after_finish_the_sweeper_writes_the_last_events(calm: Any, provider: Any) -> None:
    api, agent, _ = calm
    run = claim(accept(api, agent))
    store_answer(run, "done")
    assert runs.finish(run, stop_reason="end_turn", usage={"step_count": 1})
    Run.objects.filter(pk=run.pk).update(completed_at=timezone.now() - timedelta(minutes=1))
    sweeper.sweep()
    kinds = [e.kind for e in log.read(run.pk)]
    assert kinds == ["ping", "frame", "frame", "frame", "end"]
    assert frames(run)[0]["content"] == "done", "what the worker had not got out is streamed too"
    sweeper.sweep()
    assert len(log.read(run.pk)) == 5
    assert Run.objects.get(pk=run.pk).stream_closed


def test_after_three_attempts_the_run_fails_with_a_clear_error_and_the_next_message_works(
    calm: Any, provider: Any
) -> None:
    api, agent, new_worker = calm
    run = accept(api, agent)
    for _ in range(3):
        claim(Run.objects.get(pk=run.pk))
        Run.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        sweeper.sweep()
    ended = Run.objects.get(pk=run.pk)
    assert ended.status == RunStatus.FAILED
    assert "3 times" in ended.error["detail"]
    after = accept(api, agent, "again")
    new_worker().execute(after.pk)
    assert texts(after)[-1] == ("assistant", "Hello there.")


def test_a_stalled_worker_can_write_nothing_after_its_lease_has_moved(
    calm: Any, provider: Any
) -> None:
    from conversations.turn.checkpointer import RUN_KEY, OrmCheckpointer

    api, agent, new_worker = calm
    stale = claim(accept(api, agent))
    run = take_over(new_worker, stale)
    before = texts(run)
    with pytest.raises(Fenced), runs.fenced(stale):
        raise AssertionError("not reached")
    with pytest.raises(Fenced):
        log.append(stale.pk, stale.fence, [("frame", b"{}")])
    config: Any = {
        "configurable": {"thread_id": str(run.conversation_id), "checkpoint_ns": "", RUN_KEY: stale}
    }
    checkpoint: Any = {
        "v": 1,
        "id": "1",
        "ts": "",
        "channel_values": {},
        "channel_versions": {},
        "versions_seen": {},
    }
    with pytest.raises(Fenced):
        OrmCheckpointer().put(config, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {})
    assert not runs.finish(stale, stop_reason="error", usage={})
    assert texts(run) == before


def test_a_terminal_state_never_changes(calm: Any, provider: Any) -> None:
    api, agent, new_worker = calm
    run = accept(api, agent)
    assert runs.cancel_queued(run)
    new_worker().execute(run.pk)
    assert Run.objects.get(pk=run.pk).status == RunStatus.CANCELLED
    assert runs.release_owner("") == []


def test_a_cancelled_turn_keeps_its_partial_text_and_a_valid_history(
    api: Api, agent: dict[str, Any], provider: Any, worker: Any
) -> None:
    from souveraine.events.signals import publish

    provider.enqueue(Reply(text="one two three", error_after=2, hangs=True))
    run = accept(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 2)
    Run.objects.filter(pk=run.pk).update(cancel_requested_at=timezone.now())
    publish("cancel", str(run.pk))
    wait_for(lambda: Run.objects.get(pk=run.pk).stream_closed)
    assert Run.objects.get(pk=run.pk).status == RunStatus.CANCELLED
    assert provider.calls[0].is_closed_early
    assert texts(run)[-1] == ("assistant", "one two")
    provider.enqueue("fine")
    after = accept(api, agent, "next")
    wait_for(lambda: Run.objects.get(pk=after.pk).stream_closed)
    assert texts(after)[-1] == ("assistant", "fine")


def test_shutdown_gives_runs_back(
    api: Api, agent: dict[str, Any], provider: Any, worker: Any, new_worker: Any
) -> None:
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True), "after the restart")
    run = accept(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 1)
    worker.drain(timedelta(seconds=0.05))
    wait_for(lambda: Run.objects.get(pk=run.pk).status == RunStatus.QUEUED)
    new_worker().execute(run.pk)
    assert texts(run)[-1] == ("assistant", "after the restart")


def test_state_holds_no_message_bodies(api: Api, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue(
        Reply(
            text="a very particular sentence",
            tool_calls=[Call("memory_insert", {"label": "human", "new_string": "z"})],
        )
    )
    api.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
    stored = b"".join(bytes(c.data) for c in Checkpoint.objects.all()) + b"".join(
        bytes(w.data) for w in CheckpointWrite.objects.all()
    )
    assert stored
    assert b"particular" not in stored


def test_deleting_an_agent_in_mid_turn_ends_the_turn(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(text="one two", delay_seconds=0.3))
    run = accept(api, agent)
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 1)
    assert api.delete(f"/v1/agents/{agent['id']}").status == 200
    wait_for(lambda: provider.calls[0].is_finished or provider.calls[0].is_closed_early)
    assert not Run.objects.filter(pk=run.pk).exists()
    assert api.get(f"/v1/agents/{agent['id']}").status == 404
