"""Runs, steps, single messages, tools, and cancelling."""

from __future__ import annotations

import threading
from typing import Any

from conversations.models import Run
from souveraine.testing.fake_provider import Reply
from tests.conftest import Api, make_agent, wait_for


def send(api: Api, agent: dict[str, Any], text: str = "hello") -> dict[str, Any]:
    answer = api.post(f"/v1/agents/{agent['id']}/messages", {"input": text})
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def test_steps_list_works_and_names_what_a_step_cost(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(text="a", prompt_tokens=70), Reply(text="b", prompt_tokens=80))
    messages = [send(api, agent)["messages"][0] for _ in range(2)]
    listed = api.get(f"/v1/steps/?agent_id={agent['id']}").json()
    assert [s["id"] for s in listed] == [m["step_id"] for m in reversed(messages)]
    assert [s["prompt_tokens"] for s in listed] == [80, 70]
    assert api.get(f"/v1/steps/{listed[0]['id']}").json() == listed[0]
    assert api.get(f"/v1/steps?after={listed[0]['id']}").json() == listed[1:]


def test_a_message_is_retrieved_as_the_list_shows_it(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(reasoning="hm", text="yes"))
    sent = send(api, agent)["messages"]
    assert api.get(f"/v1/messages/{sent[0]['id']}").json() == sent
    unknown = api.get("/v1/messages/message-00000000-0000-4000-8000-000000000000")
    assert unknown.status == 404


def test_run_usage_sums_its_steps(api: Api, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue(Reply(text="a b", prompt_tokens=70))
    run_id = send(api, agent)["messages"][0]["run_id"]
    usage = api.get(f"/v1/runs/{run_id}/usage").json()
    assert usage["prompt_tokens"] == 70
    assert usage["total_tokens"] == 70 + usage["completion_tokens"]


def test_tools_are_found_by_name(api: Api) -> None:
    for name in ("web_search", "fetch_webpage", "memory_insert"):
        found = api.get(f"/v1/tools/?name={name}&limit=10").json()
        assert [t["name"] for t in found] == [name]
        assert api.get(f"/v1/tools/{found[0]['id']}").json() == found[0]
    base = api.post("/v1/tools/add-base-tools").json()
    assert {t["name"] for t in base} >= {"conversation_search", "memory_insert", "memory_replace"}
    ids = [t["id"] for t in base]
    assert [t["id"] for t in api.post("/v1/tools/add-base-tools").json()] == ids


def hanging_turn(
    api: Api, agent: dict[str, Any], provider: Any
) -> tuple[threading.Thread, list[Any]]:
    provider.enqueue(Reply(text="one two three", error_after=2, hangs=True))
    answers: list[Any] = []
    body = {"input": "go", "stream_tokens": True}
    path = f"/v1/agents/{agent['id']}/messages/stream"
    thread = threading.Thread(target=lambda: answers.append(api.post(path, body)))
    thread.start()
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 2)
    return thread, answers


def test_cancel_ends_the_stream_and_keeps_the_partial_text(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    thread, answers = hanging_turn(api, agent, provider)
    asked = api.post("/v1/conversations/default/cancel?agent_id=" + agent["id"])
    thread.join(20)
    run = Run.objects.get()
    assert (asked.status, asked.json()) == (200, {f"run-{run.pk}": "cancelled"})
    assert run.status == "cancelled"
    assert provider.calls[0].is_closed_early
    assert answers[0].types() == ["assistant_message", "assistant_message", "stop_reason"]
    assert {"message_type": "stop_reason", "stop_reason": "cancelled"} in answers[0].frames()
    listed = api.get(f"/v1/agents/{agent['id']}/messages").json()
    assert listed[-1]["content"] == "one two"
    provider.enqueue("fine")
    assert send(api, agent, "next")["messages"][0]["content"] == "fine"


def test_an_ended_run_is_never_called_cancelled(api: Api, agent: dict[str, Any]) -> None:
    run_id = send(api, agent)["messages"][0]["run_id"]
    answer = api.post("/v1/conversations/default/cancel?agent_id=" + agent["id"])
    assert answer.status == 409
    assert "No active runs to cancel" in answer.json()["detail"]
    assert api.post(f"/v1/agents/{agent['id']}/messages/cancel", {"run_ids": [run_id]}).json() == {}
    assert api.get(f"/v1/runs/{run_id}").json()["status"] == "completed"


def test_a_queued_run_is_cancelled_at_once_and_frees_the_conversation(idle_api: Api) -> None:
    from agents.actor import keyless_actor
    from conversations.composition import server
    from conversations.services.accept import IncomingMessage, TurnOptions

    agent = make_agent(idle_api)
    actor = keyless_actor()
    row = server().sessions.default_conversation(
        actor,
        server().inventory.list_agents(actor, {}, order_by="created_at", ascending=True, limit=1)[
            0
        ],
    )
    run = (
        server().sessions.accept_turn(actor, row, [IncomingMessage("user", "x")], TurnOptions()).run
    )
    assert idle_api.post(f"/v1/agents/{agent['id']}/messages/cancel", {}).json() == {
        f"run-{run.pk}": "cancelled"
    }
    assert Run.objects.get(pk=run.pk).status == "cancelled"
    again = server().sessions.accept_turn(actor, row, [IncomingMessage("user", "y")], TurnOptions())
    assert again.is_new
