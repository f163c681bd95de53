"""Forks share what was said before them; isolated blocks, archives, and settings of one conversation."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from conversations import selectors
from conversations.models import Conversation, Message
from souveraine.testing.fake_provider import Call, Reply
from tests.api.paging import walk
from tests.conftest import Api, make_agent


def talk(api: Api, path: str, text: str, **options: Any) -> list[dict[str, Any]]:
    answer = api.post(f"{path}/messages", {"input": text, "streaming": False, **options})
    assert answer.status == 200, answer.body
    return answer.json()["messages"]  # type: ignore[no-any-return]


def texts(api: Api, path: str, query: str = "order=asc") -> list[str]:
    listed = api.get(f"{path}/messages?{query}").json()
    return [
        m["content"] for m in listed if m["message_type"] in ("user_message", "assistant_message")
    ]


def said(provider: Any) -> list[str]:
    """What the model was last shown, without the system prompt."""
    return [m.content for m in provider.requests[-1].messages if m.role != "system"]


def start(api: Api, agent: dict[str, Any], **body: Any) -> str:
    made = api.post(f"/v1/conversations?agent_id={agent['id']}", body)
    assert made.status == 200, made.body
    return f"/v1/conversations/{made.json()['id']}"


def fork(api: Api, path: str, query: str = "") -> str:
    answer = api.post(f"{path}/fork{query}")
    assert answer.status == 200, answer.body
    return f"/v1/conversations/{answer.json()['id']}"


def test_a_fork_begins_with_all_that_was_said_and_then_goes_its_own_way(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    path = start(api, agent, summary="S")
    provider.enqueue("A1", "A2", "B2", "A3")
    talk(api, path, "Q1")
    made = api.post(f"{path}/fork").json()
    assert made["summary"] == "S"
    assert made["agent_id"] == agent["id"]
    source_ids = api.get(path).json()["in_context_message_ids"]
    assert made["in_context_message_ids"][1:] == source_ids[1:]
    assert made["in_context_message_ids"][0] != source_ids[0]
    other = f"/v1/conversations/{made['id']}"
    talk(api, path, "Q2")
    talk(api, other, "R2")
    assert said(provider) == ["Q1", "A1", "R2"]
    assert texts(api, path) == ["Q1", "A1", "Q2", "A2"]
    assert texts(api, other) == ["Q1", "A1", "R2", "B2"]
    assert Message.objects.filter(text="Q1").count() == 1
    second = fork(api, other)
    talk(api, second, "R3")
    assert said(provider) == ["Q1", "A1", "R2", "B2", "R3"]
    assert texts(api, second, "order=desc") == ["A3", "R3", "B2", "R2", "A1", "Q1"]
    for limit in (1, 2, 3, 100):
        for order in ("asc", "desc"):
            seen = walk(api, f"{second}/messages?order={order}", limit=limit)
            assert len(seen) == len(set(seen)) == 7, (limit, order)


def test_a_fork_from_a_message_has_it_and_nothing_behind_it(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    path = start(api, agent)
    provider.enqueue("A1", "A2", "B2")
    first = talk(api, path, "Q1")[-1]["id"]
    talk(api, path, "Q2")
    other = fork(api, path, f"?message_id={first}")
    assert texts(api, other) == ["Q1", "A1"]
    talk(api, other, "R2")
    assert said(provider) == ["Q1", "A1", "R2"]
    assert api.get(other).json()["_souveraine"]["message_count"] == 4
    strange = talk(api, start(api, agent), "elsewhere")[-1]["id"]
    assert api.post(f"{path}/fork?message_id={strange}").status == 404
    assert api.post(f"{path}/fork?message_id=nonsense").status == 422
    assert api.post(f"/v1/conversations/conv-{uuid.uuid4()}/fork").status == 404


def test_a_fork_in_the_middle_of_a_tool_call_can_be_talked_to(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    path = start(api, agent)
    call = Call("conversation_search", {"query": "x"})
    provider.enqueue(Reply(tool_calls=[call]), "done", "fine")
    asked = talk(api, path, "Look")[0]
    assert asked["message_type"] == "tool_call_message"
    other = fork(api, path, f"?message_id={asked['id']}")
    assert talk(api, other, "And?")[-1]["content"] == "fine"
    roles = [m.role for m in provider.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "user"]


def test_the_default_conversation_can_be_forked_and_forks_outlive_their_source(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    api.post(f"/v1/agents/{agent['id']}/messages", {"input": "Q1"})
    assert api.post("/v1/conversations/default/fork").status == 404
    other = fork(api, "/v1/conversations/default", f"?agent_id={agent['id']}")
    hidden = fork(api, f"/v1/conversations/{agent['id']}", "?hidden=true")
    listed = [c["id"] for c in api.get(f"/v1/conversations?agent_id={agent['id']}").json()]
    assert other.rpartition("/")[2] in listed
    assert hidden.rpartition("/")[2] not in listed
    reset = api.patch(
        f"/v1/agents/{agent['id']}/reset-messages", {"add_default_initial_messages": False}
    )
    assert (reset.status, len(reset.json()["message_ids"])) == (200, 1)
    assert api.get(f"/v1/agents/{agent['id']}/messages?conversation_id=default").json()[1:] == []
    assert texts(api, other) == ["Q1", "Hello there."]
    answer = api.get(f"{other}/messages").json()[0]["id"]
    assert api.get(f"/v1/messages/{answer}").status == 200
    talk(api, other, "R2")
    assert said(provider) == ["Q1", "Hello there.", "R2"]
    provider.enqueue("fresh")
    api.post(f"/v1/agents/{agent['id']}/messages", {"input": "again"})
    assert said(provider) == ["again"]
    for path in (other, hidden):
        api.delete(path)
    assert api.get(f"/v1/messages/{answer}").status == 404


def test_reset_twice_and_of_an_agent_that_was_never_talked_to(api: Api) -> None:
    agent = make_agent(api)
    for _ in range(2):
        answer = api.patch(f"/v1/agents/{agent['id']}/reset-messages", {})
        assert (answer.status, len(answer.json()["message_ids"])) == (200, 1)
    assert api.patch(f"/v1/agents/agent-{uuid.uuid4()}/reset-messages", {}).status == 404


def test_an_isolated_block_is_the_conversations_own(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    alone = start(api, agent, isolated_block_labels=["human"])
    other = start(api, agent)
    made = api.get(alone).json()
    assert len(made["isolated_block_ids"]) == 1
    insert = Call("memory_insert", {"label": "human", "new_string": "Only here"})
    provider.enqueue(Reply(tool_calls=[insert]), "ok")
    talk(api, alone, "remember")
    block = api.get(f"/v1/blocks/{made['isolated_block_ids'][0]}").json()
    assert block["value"] == "Name: Bob\nOnly here"
    shared = api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()
    assert shared["value"] == "Name: Bob"
    talk(api, alone, "hi")
    assert "Only here" in provider.requests[-1].messages[0].content
    talk(api, other, "hi")
    assert "Only here" not in provider.requests[-1].messages[0].content
    forked = fork(api, alone)
    api.patch(f"/v1/blocks/{block['id']}", {"value": "changed"})
    talk(api, forked, "hi")
    assert "Only here" in provider.requests[-1].messages[0].content
    refused = api.post(
        f"/v1/conversations?agent_id={agent['id']}", {"isolated_block_labels": ["nope"]}
    )
    assert refused.status == 400
    assert "'nope'" in refused.json()["detail"]
    api.delete(f"/v1/agents/{agent['id']}")
    assert api.get(f"/v1/blocks/{block['id']}").status == 404


def test_a_conversations_settings_go_before_the_agents(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    path = start(
        api,
        agent,
        model_settings={"temperature": 0.25, "max_output_tokens": 77},
        context_window_limit=9000,
    )
    talk(api, path, "hi")
    asked = provider.requests[-1]
    assert (asked.temperature, asked.max_tokens, asked.context_window) == (0.25, 77, 9000)
    api.patch(path, {"model_settings": None, "context_window_limit": None})
    talk(api, path, "hi")
    asked = provider.requests[-1]
    assert (asked.temperature, asked.context_window) == (1.0, 32768)
    talk(api, path, "hi", override_system="Be a cat.")
    assert provider.requests[-1].messages[0].content == "Be a cat."
    talk(api, path, "hi", system="Be a dog.")
    assert provider.requests[-1].messages[0].content == "Be a dog."
    bad = api.patch(path, {"model_settings": {"temperature": "hot"}})
    assert bad.status == 422


def test_archived_conversations_are_listed_only_when_asked_for(
    idle_api: Api,
) -> None:
    agent = make_agent(idle_api)
    kept, put_away = start(idle_api, agent), start(idle_api, agent)
    changed = idle_api.patch(put_away, {"archived": True}).json()
    assert changed["archived"] is True
    again = idle_api.patch(put_away, {"archived": True}).json()
    assert again["archived_at"] == changed["archived_at"]

    def listed(query: str) -> set[str]:
        found = idle_api.get(f"/v1/conversations?agent_id={agent['id']}{query}").json()
        return {f"/v1/conversations/{c['id']}" for c in found}

    assert listed("") == listed("&archive_status=unarchived") == {kept}
    assert listed("&archive_status=archived") == {put_away}
    assert listed("&archive_status=all") == {kept, put_away}
    assert idle_api.get("/v1/conversations?archive_status=some").status == 422
    assert idle_api.patch(put_away, {"archived": False}).json()["archived_at"] is None
    assert listed("") == {kept, put_away}


def test_lists_of_some_types_are_full_pages(api: Api, agent: dict[str, Any]) -> None:
    path = start(api, agent)
    for number in range(4):
        talk(api, path, f"Q{number}")
    wanted = "include_return_message_types=user_message"
    page = api.get(f"{path}/messages?limit=3&{wanted}").json()
    assert [m["content"] for m in page] == ["Q3", "Q2", "Q1"]
    of_agent = api.get(f"/v1/agents/{agent['id']}/messages?limit=3&{wanted}").json()
    assert [m["content"] for m in of_agent] == ["Q1", "Q2", "Q3"]
    everywhere = api.get(f"/v1/messages/?limit=2&{wanted}").json()
    assert [m["content"] for m in everywhere] == ["Q3", "Q2"]
    rest = api.get(f"/v1/messages/?{wanted}&before={everywhere[-1]['id']}").json()
    assert [m["content"] for m in rest] == ["Q1", "Q0"]
    forth = api.get(f"/v1/messages/?order=asc&{wanted}&after={rest[-1]['id']}").json()
    assert [m["content"] for m in forth] == ["Q1", "Q2", "Q3"]
    assert api.get(f"{path}/messages?include_return_message_types=nonsense").json() == []


def test_a_message_is_read_as_an_array_and_never_edited(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(text="Yes.", reasoning="Hm."))
    answer = talk(api, start(api, agent), "Q")[-1]
    parts = api.get(f"/v1/messages/{answer['id']}").json()
    assert [p["message_type"] for p in parts] == ["reasoning_message", "assistant_message"]
    path = f"/v1/agents/{agent['id']}/messages/{answer['id']}"
    refused = api.patch(path, {"message_type": "assistant_message", "content": "No."})
    assert refused.status == 405
    assert refused.json()["detail"].startswith("Message editing is no longer supported")


def history(agent: dict[str, Any], path: str, count: int) -> Conversation:
    conversation = Conversation.objects.get(pk=path.rpartition("conv-")[2])
    rows = [
        Message(
            conversation=conversation,
            agent_id=conversation.agent_id,
            sequence=number + 2,
            role=Message.Role.ASSISTANT if number % 2 else Message.Role.USER,
            text=f"text {number} " + "x" * 500,
            otid=None if number % 2 else str(uuid.uuid4()),
        )
        for number in range(count)
    ]
    Message.objects.bulk_create(rows, batch_size=2000)
    conversation.last_sequence = count + 1
    conversation.window_start = count - 8
    conversation.save()
    return conversation


def test_the_cost_of_a_fork_does_not_grow_with_the_history(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    costs = []
    for count in (10, 3000):
        path = start(idle_api, agent)
        history(agent, path, count)
        with CaptureQueriesContext(connection):
            began = time.monotonic()
            other = fork(idle_api, path)
            took = time.monotonic() - began
        conversation = Conversation.objects.get(pk=other.rpartition("conv-")[2])
        with CaptureQueriesContext(connection) as queries:
            bounds: dict[str, Any] = {
                "ascending": False,
                "limit": 50,
                "after": None,
                "before": None,
            }
            page = selectors.list_conversation_messages(conversation, **bounds)
        assert len(page) == min(count + 1, 50)
        assert len(queries) <= 3
        costs.append(took)
    assert Message.objects.filter(agent_id=conversation.agent_id).count() < 3000 + 10 + 10
    assert costs[1] < costs[0] + 0.5


@pytest.mark.parametrize("query", ["message_id=%00", "hidden=maybe", "agent_id=x"])
def test_a_wrong_query_is_refused(idle_api: Api, query: str) -> None:
    agent = make_agent(idle_api)
    path = start(idle_api, agent)
    target = "/v1/conversations/default" if query.startswith("agent_id") else path
    assert idle_api.post(f"{target}/fork?{query}").status == 422


def test_the_files_of_a_fork_say_what_it_begins_with(
    api: Api, agent: dict[str, Any], data_dir: Any
) -> None:
    path = start(api, agent)
    talk(api, path, "Q1")
    other = fork(api, path)
    folder = data_dir / "agents" / agent["id"].removeprefix("agent-") / "conversations"
    document = json.loads((folder / f"{other.rpartition('/')[2]}.json").read_text())
    assert document["inherited"] == [
        {"conversation": path.rpartition("conv-")[2], "first": 2, "last": 3}
    ]
