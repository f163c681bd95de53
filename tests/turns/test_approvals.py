"""Tool calls that wait for a client: its own tools, and tools that need its approval (contract §4.5)."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from conversations.models import Message, Run, ToolCall
from conversations.services import approvals
from conversations.services.approvals import Decision, IncomingApproval
from conversations.turn import tool_calls
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent, wait_for
from tests.turns.test_durability import accept, claim, frames, store_answer, take_over

SHELL = {
    "name": "local_shell",
    "description": "run",
    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
}
JAM = {"label": "human", "new_string": "Likes jam"}
APPROVED = IncomingApproval((Decision("call_1", {"type": "approve"}),), {"approvals": []})
WAITING_TEXT = (
    "CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call. Please "
    "approve or deny the pending request before continuing."
)


def send(
    api: Api, agent: dict[str, Any], message: Any, path: str = "messages", **options: Any
) -> Any:
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    messages = message if isinstance(message, list) else [message]
    return api.post(f"/v1/agents/{agent['id']}/{path}", {"messages": messages, **options})


def returned(call_id: str, text: Any = "file1", **fields: Any) -> dict[str, Any]:
    entry = {"type": "tool", "tool_call_id": call_id, "tool_return": text, "status": "success"}
    return {"type": "approval", "approvals": [{**entry, **fields}]}


def verdict(call_id: str, approve: bool, **fields: Any) -> dict[str, Any]:
    entry = {"type": "approval", "tool_call_id": call_id, "approve": approve, **fields}
    return {"type": "approval", "approvals": [entry]}


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [m["message_type"] for m in messages]


def listed(api: Api, agent: dict[str, Any]) -> list[dict[str, Any]]:
    found = api.get(f"/v1/agents/{agent['id']}/messages?limit=1000").json()
    return [m for m in found if m["message_type"] != "system_message"]


def human(api: Api, agent: dict[str, Any]) -> str:
    return str(api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"])


@pytest.fixture
def guarded(api: Api) -> dict[str, Any]:
    """An agent whose memory_insert requires approval."""
    agent = make_agent(api)
    path = f"/v1/agents/{agent['id']}/tools/approval/memory_insert"
    answer = api.patch(f"{path}?requires_approval=true")
    assert answer.status == 200, answer.body
    rule = {"tool_name": "memory_insert", "type": "requires_approval", "prompt_template": None}
    assert answer.json()["tool_rules"] == [rule]
    return agent


def ask(api: Api, agent: dict[str, Any], provider: Any, *calls: Call, **options: Any) -> Any:
    provider.enqueue(Reply(tool_calls=calls or [Call("memory_insert", JAM, id="call_1")]))
    answer = send(api, agent, "please", **options)
    assert answer.json()["stop_reason"]["stop_reason"] == "requires_approval", answer.body
    return answer.json()


def test_client_tool_in_token_mode_as_on_the_old_server(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(tool_calls=[Call("local_shell", {"cmd": "ls"}, id="call_1")]), "done")
    answer = send(api, agent, "run it", "messages/stream", stream_tokens=True, client_tools=[SHELL])
    frames = [f for f in answer.frames() if f != "[DONE]" and f["message_type"] != "ping"]
    requests = frames[:-2]
    assert set(kinds(requests)) == {"approval_request_message"}
    first = requests[0]["tool_call"]
    assert first == {"name": "local_shell", "arguments": None, "tool_call_id": "call_1"}
    assert all(f["tool_calls"] == f["tool_call"] for f in requests)
    assert all(f["otid"] == f["id"] for f in requests)
    deltas = [f["tool_call"] for f in requests[1:]]
    assert {d["name"] for d in deltas} == {None}
    assert "".join(d["arguments"] for d in deltas) == '{"cmd": "ls"}'
    assert frames[-2:][0]["stop_reason"] == "requires_approval"
    assert frames[-1]["message_type"] == "usage_statistics"
    assert SHELL in provider.requests[0].tools
    body = send(api, agent, returned("call_1")).json()
    assert kinds(body["messages"]) == ["tool_return_message", "assistant_message"]
    tool_return = body["messages"][0]
    assert (tool_return["tool_return"], tool_return["name"]) == ("file1", None)
    assert tool_return["step_id"] == requests[0]["step_id"]
    assert tool_return["run_id"] == body["messages"][1]["run_id"] != requests[0]["run_id"]
    assert [m.role for m in provider.requests[1].messages[1:]] == ["user", "assistant", "tool"]
    assert kinds(listed(api, agent)) == [
        "user_message",
        "approval_request_message",
        "approval_response_message",
        "tool_return_message",
        "assistant_message",
    ]
    response = listed(api, agent)[2]
    assert list(response)[-4:] == ["approvals", "approve", "approval_request_id", "reason"]
    shown = {"type": "tool", "tool_return": "file1", "status": "success", "tool_call_id": "call_1"}
    assert response["approvals"] == [{**shown, "stdout": None, "stderr": None}]
    assert (response["otid"], response["step_id"], response["approve"]) == (None, None, None)


def test_the_model_is_told_of_the_clients_skills(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    skill = {"name": "deploy", "description": "Ships it.", "location": ".skills/deploy/SKILL.md"}
    assert send(api, agent, "hi", client_skills=[skill]).status == 200
    assert (
        "- deploy (.skills/deploy/SKILL.md): Ships it." in provider.requests[0].messages[0].content
    )
    assert send(api, agent, "hi").status == 200
    assert "deploy" not in provider.requests[1].messages[0].content
    assert send(api, agent, "hi", client_skills=[{"name": "x"}]).status == 422


def test_denial_approval_and_what_the_model_sees(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    ask(api, guarded, provider)
    assert human(api, guarded) == "Name: Bob"
    provider.enqueue("understood")
    body = send(api, guarded, verdict("call_1", False, reason="no thanks")).json()
    denied = body["messages"][0]
    expected = "Error: request to call tool denied. User reason: no thanks"
    assert (denied["tool_return"], denied["status"]) == (expected, "error")
    assert provider.requests[-1].messages[-1].content == expected
    assert human(api, guarded) == "Name: Bob"
    response = listed(api, guarded)[2]
    assert (response["approve"], response["approval_request_id"]) == (False, "call_1")
    assert response["reason"] == "no thanks"
    ask(api, guarded, provider, Call("memory_insert", JAM, id="call_2"))
    provider.enqueue("done")
    body = send(api, guarded, verdict("call_2", True)).json()
    assert kinds(body["messages"]) == ["tool_return_message", "assistant_message"]
    assert body["messages"][0]["status"] == "success"
    assert human(api, guarded) == "Name: Bob\nLikes jam"


def test_deprecated_forms_by_message_id_and_by_call_id(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    request = ask(api, guarded, provider)["messages"][-1]
    provider.enqueue("ok")
    old = {
        "type": "approval",
        "approve": False,
        "approval_request_id": request["id"],
        "reason": "x",
    }
    assert send(api, guarded, old).json()["messages"][0]["status"] == "error"
    ask(api, guarded, provider, Call("memory_insert", JAM, id="call_2"))
    provider.enqueue("ok")
    old = {"approve": True, "approval_request_id": "call_2"}  # without a type
    assert send(api, guarded, old).json()["messages"][0]["status"] == "success"
    ask(api, guarded, provider, Call("memory_insert", JAM, id="call_3"))
    provider.enqueue("ok")
    parts = [{"type": "text", "text": "by "}, {"type": "text", "text": "hand"}]
    done = {"type": "tool_return", "tool_returns": [{**returned("call_3", parts)["approvals"][0]}]}
    assert send(api, guarded, done).json()["messages"][0]["tool_return"] == "by \nhand"


def test_parallel_calls_are_answered_together_and_the_others_wait_with_them(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    calls = [
        Call("local_shell", {"cmd": "a"}, id="a"),
        Call("memory_insert", JAM, id="m"),
        Call("local_shell", {"cmd": "b"}, id="b"),
    ]
    body = ask(api, agent, provider, *calls, client_tools=[SHELL])
    assert kinds(body["messages"]) == ["tool_call_message", "approval_request_message"]
    assert [c["tool_call_id"] for c in body["messages"][1]["tool_calls"]] == ["a", "b"]
    assert human(api, agent) == "Name: Bob", "nothing runs before the client has answered"
    half = send(api, agent, returned("a"))
    assert half.status == 400
    assert "Invalid tool call IDs" in half.json()["detail"]
    wrong = send(api, agent, returned("zzz"), "messages/stream")
    assert wrong.status == 200
    assert "invalid tool call ids" in wrong.frames()[1]["detail"].lower()
    provider.enqueue("both done")
    entries = [returned("b", "B")["approvals"][0], returned("a", "A")["approvals"][0]]
    both = {"type": "approval", "approvals": entries}
    returns = send(api, agent, both).json()["messages"]
    found = [(r["tool_call_id"], r["tool_return"]) for r in returns[:3]]
    assert [found[0], found[2]] == [("a", "A"), ("b", "B")]
    assert found[1][0] == "m"
    assert human(api, agent) == "Name: Bob\nLikes jam"
    sent = provider.requests[-1].messages[-3:]
    assert [m.tool_call_id for m in sent] == ["a", "m", "b"]


def test_other_messages_are_refused_while_a_call_waits(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    call = Call("local_shell", {}, id="call_1")
    request = ask(api, agent, provider, call, client_tools=[SHELL])["messages"][0]
    refused = send(api, agent, "hello?")
    assert refused.status == 409
    detail = {"code": "PENDING_APPROVAL", "message": WAITING_TEXT}
    assert refused.json()["detail"] == {**detail, "pending_request_id": request["id"]}
    stream = send(api, agent, "hello?", "messages/stream")
    assert stream.status == 200
    assert stream.types() == ["stop_reason", "error_message", "[DONE]"]
    error = stream.frames()[1]
    assert (error["error_type"], error["message"]) == ("internal_error", WAITING_TEXT)
    assert b"event: error\ndata: " in stream.body
    assert kinds(listed(api, agent)) == ["user_message", "approval_request_message"]
    shown = api.get(f"/v1/agents/{agent['id']}?include=agent.pending_approval").json()
    assert shown["pending_approval"]["id"] == request["id"]
    pending = api.get(f"/v1/agents/{agent['id']}/approvals").json()["pending"]
    assert [p["request"]["tool_calls"][0]["tool_call_id"] for p in pending] == ["call_1"]
    assert pending[0]["is_default"] is True


def test_a_decision_with_nothing_pending(api: Api, agent: dict[str, Any]) -> None:
    answer = send(api, agent, returned("call_1"))
    assert answer.status == 400
    assert answer.json()["detail"].startswith(
        "Cannot process approval response: No tool call is currently awaiting approval."
    )
    stream = send(api, agent, verdict("call_1", True), "messages/stream")
    assert stream.types() == ["stop_reason", "error_message", "[DONE]"]
    assert "No tool call is currently awaiting approval" in stream.frames()[1]["detail"]
    assert listed(api, agent) == []


def test_the_same_answer_again_changes_nothing_and_a_contradiction_is_refused(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    ask(api, guarded, provider)
    provider.enqueue("done")
    first = send(api, guarded, verdict("call_1", True)).json()
    again = send(api, guarded, verdict("call_1", True)).json()
    assert again["messages"] == first["messages"]
    assert len(provider.requests) == 2
    assert human(api, guarded) == "Name: Bob\nLikes jam"
    contradiction = send(api, guarded, verdict("call_1", False))
    assert contradiction.status == 409
    assert "decided before" in contradiction.json()["detail"]


def test_two_decisions_at_once_run_the_tool_once(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    ask(api, guarded, provider)
    provider.enqueue("done")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: send(api, guarded, verdict("call_1", True)), range(4)))
    assert {a.status for a in answers} == {200}
    assert len({a.json()["messages"][0]["id"] for a in answers}) == 1
    assert human(api, guarded) == "Name: Bob\nLikes jam"
    assert len(provider.requests) == 2


def test_a_message_beside_the_decision_comes_after_the_return(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    ask(api, guarded, provider)
    provider.enqueue("done", "fine")
    more = {"role": "user", "content": "and hurry"}
    assert send(api, guarded, [more, verdict("call_1", True)]).status == 200
    roles = [(m.role, m.content) for m in provider.requests[-1].messages[-2:]]
    assert [role for role, _ in roles] == ["tool", "user"]
    assert roles[1][1] == "and hurry"
    assert human(api, guarded) == "Name: Bob\nLikes jam"
    assert send(api, guarded, "next").json()["messages"][0]["content"] == "fine"


def test_a_client_tool_cannot_be_approved_and_hides_ours_of_the_same_name(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    own = {**SHELL, "name": "memory_insert"}
    call = Call("memory_insert", JAM, id="call_1")
    ask(api, agent, provider, call, client_tools=[own])
    offered = [t for t in provider.requests[0].tools if t["name"] == "memory_insert"]
    assert offered == [own]
    refused = send(api, agent, verdict("call_1", True))
    assert refused.status == 400
    assert "runs at the client" in refused.json()["detail"]
    provider.enqueue("ok")
    assert send(api, agent, verdict("call_1", False)).status == 200
    assert human(api, agent) == "Name: Bob"


def test_a_decision_can_be_remembered_until_revoked(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    ask(api, guarded, provider)
    provider.enqueue("done")
    send(api, guarded, verdict("call_1", True, remember=True))
    provider.enqueue(Reply(tool_calls=[Call("memory_insert", JAM, id="call_2")]), "done")
    body = send(api, guarded, "again").json()
    assert kinds(body["messages"])[:2] == ["tool_call_message", "tool_return_message"]
    path = f"/v1/agents/{guarded['id']}/approvals"
    assert [r["tool_name"] for r in api.get(path).json()["remembered"]] == ["memory_insert"]
    assert api.delete(f"{path}/memory_insert").status == 200
    assert api.delete(f"{path}/memory_insert").status == 404
    ask(api, guarded, provider, Call("memory_insert", JAM, id="call_3"))
    provider.enqueue("ok")
    send(api, guarded, verdict("call_3", False, reason="never", remember=True))
    provider.enqueue(Reply(tool_calls=[Call("memory_insert", JAM, id="call_4")]), "ok")
    body = send(api, guarded, "once more").json()
    assert body["messages"][1]["tool_return"].endswith("User reason: never")


def test_cancel_resolves_a_pending_request(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    asked = ask(api, guarded, provider, Call("memory_insert", JAM), Call("memory_replace", {}))
    run_id = asked["messages"][0]["run_id"]
    answer = api.post(f"/v1/agents/{guarded['id']}/messages/cancel", {})
    assert (answer.status, answer.json()) == (200, {}), "the run that asked had ended"
    assert api.get(f"/v1/runs/{run_id}").json()["status"] == "completed"
    returns = [m for m in listed(api, guarded) if m["message_type"] == "tool_return_message"]
    assert "cancelled" in returns[0]["tool_return"]
    assert "not made" in returns[1]["tool_return"]
    provider.enqueue("fine")
    assert send(api, guarded, "next").json()["messages"][0]["content"] == "fine"
    assert api.get(f"/v1/agents/{guarded['id']}/approvals").json()["pending"] == []


def test_nobody_decides(api: Api, guarded: dict[str, Any], provider: Any) -> None:
    ask(api, guarded, provider)
    assert approvals.expire() == 0
    ToolCall.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    wait_for(lambda: approvals.expire() or not ToolCall.objects.filter(state="waiting").exists())
    assert approvals.expire() == 0
    text = listed(api, guarded)[-1]["tool_return"]
    assert text == f"Error: request to call tool denied. User reason: {approvals.EXPIRED}"
    assert human(api, guarded) == "Name: Bob"
    late = send(api, guarded, verdict("call_1", True))
    assert late.status == 409
    provider.enqueue("fine")
    assert send(api, guarded, "next").json()["messages"][0]["content"] == "fine"


def test_the_same_otid_gives_the_first_answer(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    ask(api, guarded, provider)
    provider.enqueue("done")
    message = {**verdict("call_1", True), "otid": str(uuid.uuid4())}
    first, second = send(api, guarded, message), send(api, guarded, message)
    assert first.json()["messages"] == second.json()["messages"]
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    "message",
    [
        {"type": "approval"},
        {"type": "approval", "approvals": []},
        {"type": "approval", "approvals": [{"type": "tool", "tool_call_id": "call_1"}]},
        {"type": "approval", "approvals": [{"approve": True}]},
        {"type": "approval", "approvals": ["x"]},
        {"type": "approval", "approvals": [{"type": "zzz"}]},
        {"type": "tool_return", "tool_returns": []},
        returned("call_1", [{"type": "video"}]),
        returned("call_1", 5),
    ],
)
def test_malformed_decisions_are_422_and_lose_nothing(
    api: Api, guarded: dict[str, Any], provider: Any, message: dict[str, Any]
) -> None:
    ask(api, guarded, provider)
    assert send(api, guarded, message).status == 422
    provider.enqueue("done")
    assert send(api, guarded, verdict("call_1", True)).status == 200


@pytest.mark.parametrize("crash", ["decided", "started", "returned"])
def test_a_worker_that_dies_after_the_decision_is_replaced(
    idle_api: Api, provider: Any, new_worker: Any, crash: str
) -> None:
    """Whoever takes the run over carries the decision out, and repeats nothing that may have had effects."""
    api, agent = idle_api, make_agent(idle_api)
    path = f"/v1/agents/{agent['id']}/tools/approval/memory_insert"
    assert api.patch(path, {"requires_approval": True}).status == 200
    provider.enqueue(Reply(tool_calls=[Call("memory_insert", JAM, id="call_1")]), "done")
    asked = accept(api, agent)
    new_worker().execute(asked.pk)
    assert Run.objects.get(pk=asked.pk).stop_reason == "requires_approval"
    run = claim(accept(api, agent, APPROVED))
    entry = ToolCall.objects.get()
    assert (entry.state, entry.run_id) == ("decided", run.pk)
    if crash != "decided":
        ToolCall.objects.update(state="started")
    if crash == "returned":
        message = Message.objects.get(id=entry.message_id)
        tool_calls._finish(run, message, 0, tool_calls.Outcome("kept", "success"))
    run = take_over(new_worker, run)
    assert run.stop_reason == "end_turn"
    [returned_text] = [m.text for m in run.messages.filter(role="tool")]
    assert human(api, agent) == ("Name: Bob\nLikes jam" if crash == "decided" else "Name: Bob")
    expected = {"started": tool_calls.UNKNOWN_OUTCOME, "returned": "kept"}
    assert returned_text == expected.get(crash, returned_text)
    assert len(provider.requests) == 2


def test_a_worker_that_dies_before_the_request_is_sent_asks_once(
    idle_api: Api, provider: Any, new_worker: Any
) -> None:
    api, agent = idle_api, make_agent(idle_api)
    run = claim(accept(api, agent, client_tools=[SHELL]))
    call = {"id": "call_1", "name": "local_shell", "arguments": "{}", "gate": "client"}
    message = store_answer(run, calls=[call])
    approvals.open_calls(run.conversation, message, ["client"], run)
    run.conversation.save(update_fields=["pending_message_id"])
    run = take_over(new_worker, run)
    assert (run.status, run.stop_reason) == ("completed", "requires_approval")
    assert provider.requests == []
    kinds_sent = [f["message_type"] for f in frames(run)]
    assert kinds_sent == ["approval_request_message", "stop_reason", "usage_statistics"]


def test_a_queued_message_waits_for_the_decision_and_never_stands_in_its_way(
    api: Api, guarded: dict[str, Any], provider: Any
) -> None:
    ask(api, guarded, provider)
    provider.enqueue("inserted", "and now this")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send, api, guarded, "later", when_busy="queue")
        wait_for(lambda: Run.objects.filter(status="waiting").exists())
        assert send(api, guarded, "hello?").json()["code"] == "PENDING_APPROVAL"
        decided = send(api, guarded, verdict("call_1", True)).json()
        assert decided["messages"][-1]["content"] == "inserted"
        assert waiting.result(30).json()["messages"][0]["content"] == "and now this"
    ask(api, guarded, provider, Call("memory_insert", JAM, id="call_2"))
    provider.enqueue("after the denial")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send, api, guarded, "later", when_busy="queue")
        [run] = wait_for(lambda: list(Run.objects.filter(status="waiting")))
        assert approvals.withdraw([run.conversation], None) == 1
        assert waiting.result(30).json()["messages"][0]["content"] == "after the denial"


def test_cancelling_a_decision_that_nobody_took_up_answers_its_calls(
    idle_api: Api, provider: Any, new_worker: Any
) -> None:
    api, agent = idle_api, make_agent(idle_api)
    provider.enqueue(Reply(tool_calls=[Call("local_shell", {}, id="call_1")]))
    new_worker().execute(accept(api, agent, client_tools=[SHELL]).pk)
    denied = IncomingApproval((Decision("call_1", {"type": "deny", "reason": ""}),), {})
    run = accept(api, agent, denied)
    answer = api.post(f"/v1/agents/{agent['id']}/messages/cancel", {})
    assert answer.json() == {f"run-{run.pk}": "cancelled"}
    [returned_row] = Message.objects.filter(role="tool")
    assert (returned_row.text, returned_row.status) == (tool_calls.CANCELLED, "error")
    assert Run.objects.get(pk=run.pk).status == "cancelled"
