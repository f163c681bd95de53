"""Runs, steps, single messages, tools, and cancelling."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from agents.actor import keyless_actor
from conversations.models import Run
from souveraine.testing.fake_provider import Call, Reply
from tests.api.paging import walk
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
    before = len(provider.calls)
    provider.enqueue(Reply(text="one two three", error_after=2, hangs=True))
    answers: list[Any] = []
    body = {"input": "go", "stream_tokens": True}
    path = f"/v1/agents/{agent['id']}/messages/stream"
    thread = threading.Thread(target=lambda: answers.append(api.post(path, body)), daemon=True)
    thread.start()
    wait_for(lambda: len(provider.calls) > before and provider.calls[before].sent >= 2)
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


def test_lists_of_runs_and_steps_cost_the_same_for_many_rows(
    api: Api, agent: dict[str, Any], provider: Any, django_assert_max_num_queries: Any
) -> None:
    """The callback of a run comes with it, not by one query each."""
    from conversations.models import RunCallback, Step
    from conversations.selectors import run_filters, step_filters
    from conversations.wire.states import run_state
    from conversations.wire.steps import step_state
    from souveraine.api.pagination import page

    run_id = send(api, agent)["messages"][0]["run_id"].removeprefix("run-")
    run = Run.objects.get(pk=run_id)
    for number in range(6):
        copy = Run.objects.create(
            conversation=run.conversation, agent=run.agent, first_sequence=1, status="completed"
        )
        Step.objects.create(run=copy, agent=run.agent, index=0)
        if number % 2:
            RunCallback.objects.create(run=copy, url="https://example.com/")
    actor = keyless_actor()
    with django_assert_max_num_queries(1):
        rows = page(run_filters(actor, {}), field="created_at", ascending=False, limit=50)
        assert sum(run_state(row)["callback_url"] is not None for row in rows) == 3
        assert len(rows) == 7
    with django_assert_max_num_queries(1):
        steps = page(step_filters(actor, {}), field="created_at", ascending=False, limit=50)
        assert len([step_state(step) for step in steps]) == 7


def tool_turn(api: Api, agent: dict[str, Any], provider: Any) -> str:
    """Run a turn with a tool call and return its run id."""
    provider.enqueue(
        Reply(tool_calls=[Call("memory_insert", {"label": "human", "new_string": "likes tea"})]),
        Reply(text="noted"),
    )
    return send(api, agent)["messages"][0]["run_id"]  # type: ignore[no-any-return]


def test_a_run_s_messages_and_steps_are_paged(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    run_id = tool_turn(api, agent, provider)
    messages = api.get(f"/v1/runs/{run_id}/messages").json()
    kinds = ["user_message", "tool_call_message", "tool_return_message", "assistant_message"]
    assert [m["message_type"] for m in messages] == kinds
    assert walk(api, f"/v1/runs/{run_id}/messages", limit=1) == [m["id"] for m in messages]
    newest_first = walk(api, f"/v1/runs/{run_id}/messages?order=desc", limit=1)
    assert newest_first == [m["id"] for m in reversed(messages)]
    steps = api.get(f"/v1/runs/{run_id}/steps").json()
    assert [s["id"] for s in steps] == [messages[3]["step_id"], messages[1]["step_id"]]
    assert walk(api, f"/v1/runs/{run_id}/steps", limit=1) == [s["id"] for s in steps]
    of_step = api.get(f"/v1/steps/{steps[1]['id']}/messages").json()
    assert [m["message_type"] for m in of_step] == kinds[:3]


def test_metrics_tell_what_took_how_long(api: Api, agent: dict[str, Any], provider: Any) -> None:
    run_id = tool_turn(api, agent, provider)
    metrics = api.get(f"/v1/runs/{run_id}/metrics").json()
    inserted = next(t["id"] for t in agent["tools"] if t["name"] == "memory_insert")
    assert (metrics["id"], metrics["num_steps"], metrics["tools_used"]) == (run_id, 2, [inserted])
    assert metrics["run_ns"] > 0
    assert metrics["run_start_ns"] > 1_700_000_000 * 10**9
    second, first = api.get(f"/v1/runs/{run_id}/steps").json()
    with_tool = api.get(f"/v1/steps/{first['id']}/metrics").json()
    assert with_tool["tool_execution_ns"] > 0
    assert with_tool["step_ns"] >= with_tool["llm_request_ns"] > 0
    assert with_tool["step_start_ns"] >= metrics["run_start_ns"]
    assert api.get(f"/v1/steps/{second['id']}/metrics").json()["tool_execution_ns"] is None


def test_feedback_is_kept_and_found_again(api: Api, agent: dict[str, Any], provider: Any) -> None:
    steps = [send(api, agent)["messages"][0]["step_id"] for _ in range(2)]
    path = f"/v1/steps/{steps[0]}/feedback"
    rated = api.patch(path, {"feedback": "positive", "tags": ["short", "süß"]}).json()
    assert (rated["feedback"], rated["tags"]) == ("positive", ["short", "süß"])
    assert api.patch(path, {"tags": ["süß"]}).json()["feedback"] == "positive"
    for query in ("feedback=positive", "has_feedback=true", "tags=süß", "tags=x&tags=süß"):
        assert [s["id"] for s in api.get(f"/v1/steps?{query}").json()] == [steps[0]], query
    for query in ("feedback=negative", "tags=short", "tags=s", "trace_ids=x"):
        assert api.get(f"/v1/steps?{query}").json() == [], query
    assert api.patch(path, {"feedback": None}).json()["feedback"] is None
    assert api.patch(path, {"feedback": "meh"}).status == 422
    since = api.get(f"/v1/steps/{steps[1]}/metrics").json()["step_start_ns"] / 10**9
    from_then = datetime.fromtimestamp(since, UTC).isoformat().replace("+00:00", "Z")
    assert [s["id"] for s in api.get(f"/v1/steps?start_date={from_then}").json()] == [steps[1]]
    assert [s["id"] for s in api.get(f"/v1/steps?end_date={from_then[:-1]}").json()][-1] == steps[0]


def test_a_live_run_is_listed_as_active_and_deleted_only_after_its_end(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    done = send(api, agent)["messages"][0]["run_id"]
    thread, _ = hanging_turn(api, agent, provider)
    [live] = api.get(f"/v1/runs/active?agent_id={agent['id']}").json()
    assert live["status"] == "running"
    assert api.get("/v1/runs?active=true").json() == [live]
    assert api.get("/v1/runs?statuses=completed").json()[0]["id"] == done
    assert api.get("/v1/runs/active?background=true").json() == []
    assert api.get("/v1/runs?statuses=nope").status == 422
    refused = api.delete(f"/v1/runs/{live['id']}")
    assert (refused.status, refused.json()["code"]) == (409, "CONFLICT")
    api.post(f"/v1/agents/{agent['id']}/messages/cancel", {})
    thread.join(20)
    assert api.delete(f"/v1/runs/{live['id']}").status == 200
    assert api.get(f"/v1/runs/{live['id']}").status == 404
    assert api.get("/v1/runs/active").json() == []
    listed = api.get(f"/v1/agents/{agent['id']}/messages").json()
    assert [m["content"] for m in listed[-2:]] == ["go", "one two"]


def test_the_trace_of_a_run_tells_its_calls_in_order(api: Api, agent: Any, provider: Any) -> None:
    arguments = '{"label": "human", "new_string": "x"}'
    provider.enqueue(Reply(tool_calls=[Call("memory_insert", arguments)]), Reply("done"))
    api.post(f"/v1/agents/{agent['id']}/messages", {"input": "go"})
    run = Run.objects.get()
    trace = api.get(f"/v1/runs/run-{run.pk}/trace").json()
    assert [span["kind"] for span in trace] == ["llm_call", "tool_call", "llm_call"]
    assert [span["status"] for span in trace] == ["success"] * 3
    assert trace[1]["name"] == "memory_insert"
    assert all(s["started_at"] <= s["completed_at"] for s in trace)
    assert api.get(f"/v1/runs/run-{run.pk}/trace?limit=1").json() == trace[:1]
    assert api.get(f"/v1/runs/run-{run.pk}/trace?limit=-1").status == 422


def test_an_empty_id_in_the_query_is_refused(idle_api: Api) -> None:
    for query in ("conversation_id=", "conversation_id=x", "agent_ids="):
        assert idle_api.get(f"/v1/runs?{query}").status == 422, query
