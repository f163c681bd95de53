"""What a second hostile tester found between approvals, queue, cancel and compaction; each test is one finding."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from conversations.models import Conversation, Message, Run
from conversations.services import approvals, cancel, compactions, runs
from conversations.turn import tool_calls
from souveraine.errors import ConversationBusy
from souveraine.testing.fake_provider import Call
from tests.conftest import Api, make_agent
from tests.turns.test_approvals import SHELL, ask, returned, send, verdict
from tests.turns.test_durability import accept, claim


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_what_is_said_beside_a_decision_in_any_role_hides_no_return(
    api: Api, agent: dict[str, Any], provider: Any, role: str
) -> None:
    ask(api, agent, provider, Call("local_shell", {}, id="call_1"), client_tools=[SHELL])
    provider.enqueue("seen")
    answer = send(api, agent, [returned("call_1", "the file"), {"role": role, "content": "aside"}])
    assert [m["message_type"] for m in answer.json()["messages"]] == [
        "tool_return_message",
        "assistant_message",
    ]
    said = [(m.role, m.content) for m in provider.requests[-1].messages[-3:]]
    assert said == [("assistant", ""), ("tool", "the file"), (role, "aside")]


def test_a_turn_whose_last_message_is_in_the_assistants_name_is_answered(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue("real")
    answer = send(api, agent, [{"role": r, "content": r} for r in ("user", "assistant")])
    assert [m["content"] for m in answer.json()["messages"]] == ["real"]


def test_a_cancel_stops_the_live_run_before_it_closes_the_streams_of_those_that_wait(
    idle_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(idle_api)
    given = [accept(idle_api, agent, f"m{n}", when_busy="queue") for n in range(4)]
    statuses: list[set[str]] = []
    close = cancel.try_close

    def noted(run: Run) -> bool:
        statuses.append(set(Run.objects.values_list("status", flat=True)))
        return close(run)

    monkeypatch.setattr(cancel, "try_close", noted)
    assert cancel.cancel_runs(given) == {f"run-{run.pk}": "cancelled" for run in given}
    assert statuses == [{"cancelled"}] * 4
    assert cancel.cancel_runs(given) == {}, "they have ended"
    assert all(Run.objects.values_list("stream_closed", flat=True))
    assert Message.objects.filter(role="user").count() == 1, "what waited is never said"


def test_only_the_request_that_is_overdue_is_settled(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    ask(api, agent, provider, Call("local_shell", {}, id="call_1"), client_tools=[SHELL])
    conversation = Conversation.objects.get()
    assert not approvals.settle(conversation.pk, uuid.uuid4(), approvals.EXPIRED), "an earlier one"
    provider.enqueue("done")
    assert send(api, agent, returned("call_1")).status == 200


def test_a_failed_send_tried_again_during_a_compaction_is_not_said_twice(idle_api: Api) -> None:
    from agents.actor import keyless_actor
    from conversations.services.accept import IncomingMessage

    agent, message = make_agent(idle_api), IncomingMessage("user", "hello", otid="o")
    failed = claim(accept(idle_api, agent, message))
    runs.finish(failed, stop_reason="error", usage={})
    compaction = compactions.request_compaction(keyless_actor(), failed.conversation, {})
    with pytest.raises(ConversationBusy):
        accept(idle_api, agent, message, when_busy="queue")
    runs.finish(claim(compaction), stop_reason="end_turn", usage={})
    accept(idle_api, agent, message, when_busy="queue")
    assert [m.text for m in Message.objects.filter(role="user")] == ["hello"]


def test_the_reason_of_a_denial_is_cut_like_a_return(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    ask(api, agent, provider, Call("local_shell", {}, id="call_1"), client_tools=[SHELL])
    provider.enqueue("sorry")
    answer = send(api, agent, verdict("call_1", False, reason="x" * 1_000_000))
    text = answer.json()["messages"][0]["tool_return"]
    assert len(text) < tool_calls.CLIENT_RETURN_CHARS + 200
    assert "characters left out" in text


def test_a_repeated_answer_whose_run_was_deleted_is_told_so(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    ask(api, agent, provider, Call("local_shell", {}, id="call_1"), client_tools=[SHELL])
    provider.enqueue("done")
    assert send(api, agent, returned("call_1")).status == 200
    newest = Run.objects.order_by("-created_at")[0]
    assert api.delete(f"/v1/runs/run-{newest.pk}").status == 200
    again = send(api, agent, returned("call_1"))
    assert again.status == 409
    assert "was deleted" in again.json()["detail"]
