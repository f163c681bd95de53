"""`…/summarize`, `…/compact`, `…/recompile` and `…/context`."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from conversations.models import Message, Run, RunStatus, Step
from conversations.turn import sweeper
from souveraine.errors import ProviderError
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent, wait_for
from tests.turns.test_compaction import fill, is_summariser, say, summaries


def compact(api: Api, agent: dict[str, Any], **settings: Any) -> Any:
    body = {"compaction_settings": settings} if settings else None
    return api.post(f"/v1/agents/{agent['id']}/summarize", body)


def seen(provider: Any) -> list[str]:
    """The texts of the last request."""
    return [str(m.content) for m in provider.requests[-1].messages]


def test_it_works(api: Api, agent: dict[str, Any], provider: Any) -> None:
    conversation = fill(agent, turns=10)
    provider.enqueue("They planned a garden.")
    answer = compact(api, agent)
    assert answer.status == 200, answer.body
    body = answer.json()
    assert body["summary"] == "They planned a garden."
    assert body["num_messages_before"] == 21
    assert 2 < body["num_messages_after"] <= 2 + 6, "about 30 % stays"
    run = Run.objects.get(conversation=conversation)
    state = api.get(f"/v1/runs/run-{run.pk}").json()
    assert (state["status"], state["metadata"]["run_type"]) == ("completed", "compaction")
    assert run.usage["prompt_tokens"] > 0
    conversation.refresh_from_db()
    assert (conversation.turn_count, conversation.last_message_at) == (0, None)
    assert_next = say(api, agent, "Go on.")
    assert assert_next.status == 200
    assert "They planned a garden." in seen(provider)[1]
    assert seen(provider)[-1] == "Go on."


def test_each_mode_does_what_it_says(api: Api, agent: dict[str, Any], provider: Any) -> None:
    conversation = fill(agent, turns=4)
    provider.enqueue("one")
    body = compact(api, agent, mode="all").json()
    assert body == {"summary": "one", "num_messages_before": 9, "num_messages_after": 2}
    assert is_summariser(provider.requests[-1])
    fill(agent, turns=4)
    provider.enqueue("two")
    assert compact(api, agent, mode="self_compact_all").json()["num_messages_after"] == 2
    request = provider.requests[-1]
    assert not is_summariser(request)
    assert "one" in str(request.messages[1].content), "the summary before is in view"
    assert [m.role for m in request.messages[2:]] == ["user", "assistant"] * 4 + ["user"]
    assert [t["name"] for t in request.tools] == [t["name"] for t in agent["tools"]]
    fill(agent, turns=10)
    provider.enqueue("three")
    kept = compact(api, agent, mode="self_compact_sliding_window", sliding_window_percentage=0.5)
    assert 2 + 8 <= kept.json()["num_messages_after"] <= 2 + 10
    assert [s.text for s in summaries(conversation)] == ["one", "two", "three"]


def test_settings_of_agent_and_request_are_honoured(
    api: Api, provider: Any, agent: dict[str, Any]
) -> None:
    provider.models = ["fake-model", "small"]
    given = {
        "mode": "all",
        "model": "fake/small",
        "prompt": "In three words.",
        "prompt_acknowledgement": True,
        "clip_chars": 200,
        "model_settings": {"temperature": 0.2, "max_output_tokens": 77},
    }
    state = api.patch(f"/v1/agents/{agent['id']}", {"compaction_settings": given}).json()
    assert state["compaction_settings"] == given
    fill(agent, turns=3)
    provider.enqueue("word " * 200)
    body = compact(api, agent).json()
    assert len(body["summary"]) <= 200
    request = provider.requests[-1]
    assert (request.model, request.temperature, request.max_tokens) == ("small", 0.2, 77)
    assert request.messages[0].content == "In three words."
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "user"]
    fill(agent, turns=3)
    provider.enqueue("fine")
    assert compact(api, agent, prompt="In one word.").json()["summary"] == "fine"
    assert provider.requests[-1].messages[0].content == "In one word."
    assert provider.requests[-1].model == "small"


@pytest.mark.parametrize(
    "bad",
    [
        {"mode": "cull"},
        {"sliding_window_percentage": 30},
        {"sliding_window_percentage": 0},
        {"clip_chars": 3},
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(
    api: Api, agent: dict[str, Any], bad: dict[str, Any]
) -> None:
    assert compact(api, agent, **bad).status == 422
    assert api.patch(f"/v1/agents/{agent['id']}", {"compaction_settings": bad}).status == 422
    assert Run.objects.count() == 0


def test_letta_codes_model_is_the_agents_own_and_unknown_ones_are_refused(
    api: Api, provider: Any
) -> None:
    agent = make_agent(api, compaction_settings={"model": "letta/auto"})
    fill(agent, turns=3)
    provider.enqueue("fine")
    assert compact(api, agent, mode="all").json()["summary"] == "fine"
    assert provider.requests[-1].model == "fake-model"
    assert compact(api, agent, model="fake/none").status == 404
    api.patch(f"/v1/agents/{agent['id']}", {"compaction_settings": {"model": "gone/model"}})
    fill(agent, turns=3)
    assert "in excerpts" in compact(api, agent, mode="all").json()["summary"]
    run = Run.objects.order_by("created_at").last()
    assert "There is no model provider 'gone'" in run.request["notices"][0]


def test_nothing_to_leave_out_is_400(api: Api, agent: dict[str, Any], provider: Any) -> None:
    answer = compact(api, agent)
    assert answer.status == 400
    assert answer.json()["detail"].startswith(
        "Summarization failed to reduce the number of messages."
    )
    assert provider.requests == []
    assert say(api, agent).status == 200


def test_busy_is_409_and_a_compaction_makes_busy_and_can_be_cancelled(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    conversation = fill(agent, turns=5)
    provider.enqueue(Reply(text="They", hangs=True))
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(compact(api, agent)))
    waiting.start()
    wait_for(lambda: provider.calls and provider.calls[0].sent)
    run = Run.objects.get(conversation=conversation)
    for refused in (say(api, agent), compact(api, agent)):
        assert (refused.status, refused.json()["run_id"]) == (409, f"run-{run.pk}")
    cancelled = api.post(f"/v1/agents/{agent['id']}/messages/cancel", {})
    assert cancelled.json() == {f"run-{run.pk}": "cancelled"}
    waiting.join(20)
    assert answers[0].status == 409
    assert "cancelled" in answers[0].json()["detail"]
    assert provider.calls[0].is_closed_early
    conversation.refresh_from_db()
    assert (conversation.window_start, summaries(conversation)) == (0, [])
    assert say(api, agent).status == 200


def test_a_compaction_leaves_a_call_that_waits_for_a_client(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    conversation = fill(agent, turns=6)
    conversation.last_sequence += 1
    call = {"id": "call_1", "name": "Bash", "arguments": "{}", "gate": "client"}
    pending = Message.objects.create(
        conversation=conversation,
        agent_id=conversation.agent_id,
        sequence=conversation.last_sequence,
        role="assistant",
        text="Shall I?",
        tool_calls=[call],
    )
    conversation.pending_message_id = pending.id
    conversation.save()
    provider.enqueue("A summary.")
    body = compact(api, agent, mode="all").json()
    assert body["num_messages_after"] == 5, "the turn that waits stays whole"
    conversation.refresh_from_db()
    assert conversation.window_start == pending.sequence - 2
    assert conversation.pending_message_id == pending.id


def test_a_summary_is_not_made_twice_when_the_worker_dies(
    idle_api: Api, new_worker: Any, provider: Any
) -> None:
    provider.context_window = 2000
    agent = make_agent(idle_api, system="You are brief.", include_base_tools=False)
    conversation = fill(agent, turns=12)
    path = f"/v1/agents/{agent['id']}/messages/async"
    run_id = uuid.UUID(
        idle_api.post(path, {"input": "Hello", "include_compaction_messages": True})
        .json()["id"]
        .removeprefix("run-")
    )

    def die_while(*replies: Reply | str) -> None:
        before = len(provider.calls)
        provider.enqueue(*replies)
        worker = new_worker()
        thread = threading.Thread(target=lambda: worker.execute(run_id), daemon=True)
        thread.start()
        wait_for(lambda: len(provider.calls) == before + len(replies) and provider.calls[-1].sent)
        worker._cancel_all()
        thread.join(20)
        Run.objects.filter(pk=run_id).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        assert sweeper.sweep() == [run_id]

    die_while(Reply(text="They", hangs=True))
    assert summaries(conversation) == []
    conversation.refresh_from_db()
    assert conversation.window_start == 0, "nothing half done"
    die_while("They planned a garden.", Reply(text="An", hangs=True))
    assert len(summaries(conversation)) == 1
    provider.enqueue("An answer.")
    new_worker().execute(run_id)
    assert Run.objects.get(pk=run_id).status == RunStatus.COMPLETED
    assert [is_summariser(r) for r in provider.requests] == [True, True, False, False]
    assert len(summaries(conversation)) == 1
    assert len([s for s in Step.objects.filter(run=run_id) if s.tags]) == 1
    replay = idle_api.post(f"/v1/runs/run-{run_id}/stream", {}).frames()
    gone = {
        f["id"] for f in replay if f != "[DONE]" and f["message_type"] == "souveraine_retracted"
    }
    kept = [f for f in replay if f != "[DONE]" and f.get("id") and f["id"] not in gone]
    kinds = [f["message_type"] for f in kept if f["message_type"] != "ping"]
    assert kinds == ["event_message", "summary_message", "assistant_message"]


def test_recompile_returns_the_prompt_of_the_present_memory(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    say(api, agent)
    path = f"/v1/agents/{agent['id']}/recompile"
    before = api.post(path).json()
    assert "Name: Bob" in before
    assert before == seen(provider)[0]
    api.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/human", {"value": "Name: Eve"})
    dry = api.post(f"{path}?dry_run=true").json()
    assert "Name: Eve" in dry
    stored = Message.objects.get(sequence=1, conversation__is_default=True)
    assert "Name: Bob" in stored.text, "a dry run stores nothing"
    after = api.post(f"/v1/conversations/{agent['id']}/recompile", {}).json()
    stored.refresh_from_db()
    assert after == stored.text
    assert "Name: Eve" in after
    alias = api.post(f"/v1/agents/{agent['id']}/system-prompt/recompile").json()
    assert alias == after


def test_context_adds_up_to_what_the_provider_is_sent(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    conversation = fill(agent, turns=6)
    provider.enqueue(
        "They planned a garden.",
        Reply(tool_calls=[Call("conversation_search", {"query": "garden"})]),
    )
    compact(api, agent)
    say(api, agent)
    found = api.get(f"/v1/agents/{agent['id']}/context").json()
    parts = [found[key] for key in found if key.startswith("num_tokens_")]
    assert found["context_window_size_current"] == sum(parts)
    assert found["context_window_size_max"] == 32768
    assert found["summary_memory"] == "They planned a garden."
    assert found["num_tokens_summary_memory"] > 0
    assert [m["role"] for m in found["messages"]][:2] == ["system", "summary"]
    assert [m["role"] for m in found["messages"]][-4:] == ["user", "assistant", "tool", "assistant"]
    assert found["num_messages"] == len(found["messages"])
    assert found["functions_definitions"][0]["function"]["name"] == agent["tools"][0]["name"]
    assert "Name: Bob" in found["core_memory"]
    assert found["external_memory_summary"].startswith("<memory_metadata>")
    conversation.refresh_from_db()
    assert found["num_recall_memory"] == conversation.last_sequence
    other = api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()
    path = f"/v1/agents/{agent['id']}/context?conversation_id={other['id']}"
    assert api.get(path).json()["num_messages"] == 1
    stranger = make_agent(api)
    path = f"/v1/agents/{stranger['id']}/context?conversation_id={other['id']}"
    assert api.get(path).status == 422


def test_a_failing_summariser_still_compacts(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    fill(agent, turns=5)
    provider.enqueue(Reply(error=ProviderError("llm_error", "the model is down")))
    body = compact(api, agent, mode="all").json()
    assert "in excerpts" in body["summary"]
    assert body["num_messages_after"] == 2
