"""A turn from accept to its last event, through the real application and worker."""

from __future__ import annotations

import threading
from typing import Any

from souveraine.errors import ProviderError
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent


def send(api: Api, agent: dict[str, Any], text: str, path: str = "messages", **options: Any) -> Any:
    body = {"messages": [{"role": "user", "content": text}], **options}
    return api.post(f"/v1/agents/{agent['id']}/{path}", body)


def messages_of(api: Api, agent: dict[str, Any]) -> list[dict[str, Any]]:
    found = api.get(f"/v1/agents/{agent['id']}/messages?limit=1000").json()
    return [m for m in found if m["message_type"] != "system_message"]


def test_it_works(api: Api, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue("Good morning, Bob.")
    answer = send(api, agent, "Hello")
    assert answer.status == 200, answer.body
    body = answer.json()
    assert [m["message_type"] for m in body["messages"]] == ["assistant_message"]
    assert body["messages"][0]["content"] == "Good morning, Bob."
    assert body["stop_reason"] == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert body["usage"]["step_count"] == 1
    assert [m["message_type"] for m in messages_of(api, agent)] == [
        "user_message",
        "assistant_message",
    ]


def test_stream_has_the_frame_order_of_the_contract(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue("one two three")
    answer = send(api, agent, "Hello", "messages/stream", stream_tokens=True)
    frames = answer.frames()
    assert frames[0]["message_type"] == "ping"
    assert frames[0]["seq_id"] == 1
    texts = frames[1:-3]
    assert "".join(f["content"] for f in texts) == "one two three"
    assert [f["seq_id"] for f in texts] == list(range(2, 2 + len(texts)))
    assert len({(f["id"], f["otid"], f["step_id"], f["run_id"]) for f in texts}) == 1
    assert frames[-3] == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert frames[-2]["message_type"] == "usage_statistics"
    assert frames[-1] == "[DONE]"
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert b"event:" not in answer.body
    stored = messages_of(api, agent)[-1]
    assert (stored["id"], stored["otid"], stored["content"]) == (
        texts[0]["id"],
        texts[0]["otid"],
        "one two three",
    )


def test_step_mode_sends_whole_messages(api: Api, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue("one two three")
    answer = send(api, agent, "Hello", "messages/stream")
    assert answer.types() == ["assistant_message", "stop_reason", "usage_statistics", "[DONE]"]


def test_tool_call_changes_memory_and_commits(
    api: Api, agent: dict[str, Any], provider: Any, data_dir: Any
) -> None:
    call = Call("memory_insert", {"label": "human", "new_string": "Likes jam"})
    provider.enqueue(Reply(text="Noting.", tool_calls=[call]), "Done.")
    answer = send(api, agent, "I like jam", "messages/stream", stream_tokens=True)
    assert answer.types()[-3:] == ["stop_reason", "usage_statistics", "[DONE]"]
    block = api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()
    assert block["value"] == "Name: Bob\nLikes jam"
    kinds = [m["message_type"] for m in messages_of(api, agent)]
    assert kinds == [
        "user_message",
        "assistant_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    returned = messages_of(api, agent)[3]
    assert (returned["status"], returned["name"]) == ("success", "memory_insert")
    system = provider.requests[1].messages[0].content
    assert "Likes jam" in system, "the next step sees the changed block"
    uuid_ = agent["id"].removeprefix("agent-")
    text = (data_dir / "agents" / uuid_ / "memory.git" / "system" / "human.md").read_text()
    assert text.endswith("Likes jam")


def test_unknown_tool_and_broken_arguments_go_back_to_the_model(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(
        Reply(
            tool_calls=[
                Call("no_such_tool"),
                Call("memory_insert", "{not json"),
                Call("memory_insert", {"label": 5}),
            ]
        ),
        "I give up.",
    )
    body = send(api, agent, "x").json()
    returns = [m for m in body["messages"] if m["message_type"] == "tool_return_message"]
    assert [r["status"] for r in returns] == ["error"] * 3
    assert returns[0]["tool_return"].startswith(
        "[ToolConstraintError] Cannot call no_such_tool, valid tools include: ["
    )
    assert "not valid JSON" in returns[1]["tool_return"]
    assert "Wrong arguments" in returns[2]["tool_return"]
    assert body["messages"][-1]["content"] == "I give up."


def test_max_steps_ends_the_turn(api: Api, agent: dict[str, Any], provider: Any) -> None:
    call = Call("memory_insert", {"label": "human", "new_string": "a"})
    provider.enqueue(Reply(tool_calls=[call]), Reply(tool_calls=[call]))
    body = send(api, agent, "x", max_steps=1).json()
    assert body["stop_reason"]["stop_reason"] == "max_steps"
    assert len(provider.requests) == 1
    provider.enqueue("again")
    assert provider.pending == 2


def test_provider_error_keeps_the_user_message_and_the_next_one_works(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    error = ProviderError("llm_authentication", "UNAUTHENTICATED: no")
    provider.enqueue(Reply(error=error))
    answer = send(api, agent, "first")
    assert answer.status == 401
    assert answer.json()["error"]["type"] == "llm_authentication"
    assert [m["content"] for m in messages_of(api, agent)] == ["first"]
    provider.enqueue("fine")
    assert send(api, agent, "second").json()["messages"][0]["content"] == "fine"
    assert [m.content for m in provider.requests[-1].messages[1:]] == ["first", "second"]


def test_provider_error_in_a_stream_has_the_error_frame_and_done(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(text="one two", error=ProviderError("llm_error", "cut"), error_after=1))
    answer = send(api, agent, "x", "messages/stream", stream_tokens=True)
    assert answer.types() == ["assistant_message", "stop_reason", "error_message", "[DONE]"]
    assert b"event: error\ndata: " in answer.body
    run_id = answer.frames()[0]["run_id"]
    run = api.get(f"/v1/runs/{run_id}").json()
    assert (run["status"], run["stop_reason"]) == ("failed", "llm_api_error")
    assert run["metadata"]["error"]["error_type"] == "llm_error"


def test_transient_error_before_output_is_retried(
    api: Api, agent: dict[str, Any], provider: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("conversations.turn.model_call.FIRST_RETRY_SECONDS", 0.01)
    provider.enqueue(
        Reply(error=ProviderError("llm_error", "503", is_transient=True), error_after=0),
        "after all",
    )
    assert send(api, agent, "x").json()["messages"][0]["content"] == "after all"


def test_empty_answer_is_an_error(
    api: Api, agent: dict[str, Any], provider: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("conversations.turn.model_call.FIRST_RETRY_SECONDS", 0.01)
    provider.default = Reply(text="")
    answer = send(api, agent, "x")
    assert answer.status == 500
    assert answer.json()["error"]["type"] == "llm_empty_response"


def test_second_message_while_running_gets_409_with_run_id(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    release = threading.Event()
    started = threading.Event()

    def hold(request: Any) -> None:
        started.set()
        release.wait(20)

    provider.enqueue(
        lambda request: (
            Reply(text="slow", deltas=None, before=None) if hold(request) is None else Reply()
        )
    )
    first: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: first.update(answer=send(api, agent, "one")))
    thread.start()
    assert started.wait(20)
    busy = send(api, agent, "two")
    release.set()
    thread.join()
    assert busy.status == 409
    body = busy.json()
    assert "is currently being processed for this conversation" in body["detail"]
    assert body["run_id"].startswith("run-")
    assert busy.headers["x-should-retry"] == "false"
    assert first["answer"].status == 200
    assert [m["content"] for m in messages_of(api, agent)] == ["one", "slow"]


def test_the_same_otid_attaches_to_the_first_run(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    body = {"messages": [{"role": "user", "content": "once", "otid": "x1"}]}
    provider.enqueue("first", "second")
    one = api.post(f"/v1/agents/{agent['id']}/messages/stream", body)
    two = api.post(f"/v1/agents/{agent['id']}/messages/stream", body)
    assert one.frames() == two.frames()
    assert len(provider.requests) == 1
    assert [m["content"] for m in messages_of(api, agent)] == ["once", "first"]


def test_a_failed_request_may_be_repeated_with_its_otid(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    body = {"messages": [{"role": "user", "content": "once", "otid": "x1"}]}
    provider.enqueue(Reply(error=ProviderError("llm_bad_request", "no")), "now it works")
    assert api.post(f"/v1/agents/{agent['id']}/messages", body).status == 400
    answer = api.post(f"/v1/agents/{agent['id']}/messages", body)
    assert answer.json()["messages"][0]["content"] == "now it works"
    assert [m["content"] for m in messages_of(api, agent)] == ["once", "now it works"]


def test_reasoning_is_kept_apart(api: Api, agent: dict[str, Any], provider: Any) -> None:
    provider.enqueue(Reply(reasoning="let me think", text="Yes."))
    body = send(api, agent, "x").json()
    assert [m["message_type"] for m in body["messages"]] == [
        "reasoning_message",
        "assistant_message",
    ]
    first, second = body["messages"]
    assert first["id"] == second["id"]
    assert (int(first["otid"][-2:], 16) & 0x7F, int(second["otid"][-2:], 16) & 0x7F) == (0, 1)
    provider.enqueue("ok")
    send(api, agent, "y")
    assert "let me think" not in str(provider.requests[-1].messages)


def test_counters_and_pressure_grow(api: Api, agent: dict[str, Any], provider: Any) -> None:
    conversation = api.post(f"/v1/conversations/?agent_id={agent['id']}", {}).json()
    for number in range(2):
        provider.enqueue(Reply(text=f"answer {number}", prompt_tokens=1000 * (number + 1)))
        sent = api.post(f"/v1/conversations/{conversation['id']}/messages", {"input": f"m{number}"})
        assert sent.types()[-1] == "[DONE]"
    counters = api.get(f"/v1/conversations/{conversation['id']}").json()["_souveraine"]
    assert counters["turn_count"] == 2
    assert counters["message_count"] == 4
    assert 0 < counters["context_pressure"] <= 1
    assert counters["context_tokens"] > 2000


def test_agents_see_only_their_tools(api: Api, provider: Any) -> None:
    seed = make_agent(
        api, tools=["read_file", "write_file", "edit_file", "bash"], include_base_tools=False
    )
    assert [t["name"] for t in seed["tools"]] == ["read_file", "write_file", "edit_file", "bash"]
    provider.enqueue(
        Reply(
            tool_calls=[
                Call("write_file", {"path": "skills/tea.md", "content": "Steep 3 minutes."})
            ]
        ),
        Reply(
            tool_calls=[
                Call("edit_file", {"path": "skills/tea.md", "old_string": "3", "new_string": "4"})
            ]
        ),
        Reply(
            tool_calls=[
                Call("read_file", {"path": "skills/tea.md"}),
                Call("bash", {"command": "ls"}),
            ]
        ),
        Reply(
            tool_calls=[
                Call("read_file", {"path": "../../database.sqlite3"}),
                Call("write_file", {"path": ".git", "content": "x"}),
            ]
        ),
        "Done.",
    )
    body = send(api, seed, "go").json()
    returns = [m for m in body["messages"] if m["message_type"] == "tool_return_message"]
    assert returns[2]["tool_return"] == "Steep 4 minutes."
    assert "sandbox" in returns[3]["tool_return"]
    assert [r["status"] for r in returns] == [
        "success",
        "success",
        "success",
        "error",
        "error",
        "error",
    ]
    assert [t["name"] for t in provider.requests[0].tools] == [
        "read_file",
        "write_file",
        "edit_file",
        "bash",
    ]


def test_conversation_search_finds_old_words(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(
        "Noted: the violin.",
        Reply(tool_calls=[Call("conversation_search", {"query": 'violins "*'})]),
        "Yes.",
    )
    send(api, agent, "My violin is from 1780")
    body = send(api, agent, "What do I play?").json()
    found = next(m for m in body["messages"] if m["message_type"] == "tool_return_message")
    assert found["status"] == "success"
    assert "My violin is from 1780" in found["tool_return"]
