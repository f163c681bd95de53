"""Message lists: the two cursor rules (decision 0001), the forms of a page, what a row becomes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from conversations.models import Message
from souveraine.errors import ProviderError
from souveraine.testing.fake_provider import Call, Reply
from tests.api.paging import walk
from tests.conftest import Api, make_agent


@pytest.fixture
def spoken(api: Api) -> dict[str, Any]:
    """A conversation with three turns: system, then user and assistant three times."""
    agent = make_agent(api)
    made = api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()
    path = f"/v1/conversations/{made['id']}/messages"
    for number in range(3):
        answer = api.post(path, {"input": f"m{number}", "streaming": False})
        assert answer.status == 200, answer.body
    ids = [m["id"] for m in api.get(f"{path}?order=asc").json()]
    assert len(ids) == 7
    return {"agent": agent, "path": path, "ids": ids}


def ids_of(api: Api, path: str) -> list[str]:
    answer = api.get(path)
    assert answer.status == 200, answer.body
    return [m["id"] for m in answer.json()]


def test_a_conversations_cursors_mean_older_under_desc_and_both_ways_under_asc(
    api: Api, spoken: dict[str, Any]
) -> None:
    path, ids = spoken["path"], spoken["ids"]
    assert ids_of(api, path) == ids[::-1]
    assert ids_of(api, f"{path}?limit=2&after={ids[4]}") == [ids[3], ids[2]]
    assert ids_of(api, f"{path}?limit=2&before={ids[4]}") == [ids[3], ids[2]]
    assert ids_of(api, f"{path}?order=asc&limit=2&after={ids[2]}") == [ids[3], ids[4]]
    assert ids_of(api, f"{path}?order=asc&limit=2&before={ids[4]}") == [ids[2], ids[3]]
    between = f"{path}?order=asc&after={ids[1]}&before={ids[4]}"
    assert ids_of(api, between) == [ids[2], ids[3]]
    assert ids_of(api, f"{path}?after={ids[0]}") == []
    assert ids_of(api, f"{path}?limit=0") == []


def test_an_agents_page_is_oldest_first_and_its_cursors_are_chronological(
    api: Api, spoken: dict[str, Any]
) -> None:
    agent = spoken["agent"]["id"]
    for number in range(3):
        answer = api.post(f"/v1/agents/{agent}/messages", {"input": f"d{number}"})
        assert answer.status == 200
    for path in (
        f"/v1/agents/{agent}/messages?conversation_id=default",
        f"/v1/conversations/default/messages?agent_id={agent}",
        f"/v1/conversations/{agent}/messages?order=desc",
    ):
        ids = ids_of(api, path)
        assert len(ids) == 7
        texts = [m["content"] for m in api.get(path).json()]
        assert texts[1::2] == ["d0", "d1", "d2"]
        assert ids_of(api, f"{path}&limit=2") == ids[-2:]
        assert ids_of(api, f"{path}&limit=2&before={ids[-2]}") == ids[-4:-2]
        assert ids_of(api, f"{path}&limit=2&after={ids[1]}") == ids[-2:]
        if "order" not in path:
            assert ids_of(api, f"{path}&order=asc&limit=2") == ids[:2]
            assert ids_of(api, f"{path}&order=asc&limit=2&after={ids[1]}") == ids[2:4]
            assert ids_of(api, f"{path}&order=asc&limit=2&before={ids[3]}") == ids[:2]
    everything = ids_of(api, f"/v1/agents/{agent}/messages")
    assert len(everything) == 14, "without a conversation those of all are listed"


def test_each_message_is_seen_once_while_paging_and_while_more_is_said(
    api: Api, spoken: dict[str, Any]
) -> None:
    path, ids = spoken["path"], spoken["ids"]
    Message.objects.all().update(created_at=datetime(2026, 1, 1, tzinfo=UTC))

    def speak(number: int) -> None:
        if number < 2:
            body = {"input": "more", "streaming": False}
            assert api.post(path, body).status == 200

    assert walk(api, path, between=speak) == ids[::-1]
    count = len(ids_of(api, path))
    assert count == 11
    forward = walk(api, f"{path}?order=asc", limit=3, between=speak)
    assert len(forward) == len(set(forward)) == 15
    agent = spoken["agent"]["id"]
    backwards = walk(api, f"/v1/agents/{agent}/messages", by="before", limit=3)
    assert len(backwards) == len(set(backwards)) == 16
    assert backwards == ids_of(api, f"/v1/agents/{agent}/messages?order=asc")


def test_types_are_chosen_and_an_assistant_row_is_several_messages(api: Api, provider: Any) -> None:
    agent = make_agent(api)
    call = Call("memory_insert", {"label": "human", "new_string": "a"})
    provider.enqueue(Reply(reasoning="hm", text="Noting.", tool_calls=[call]), "Done.")
    path = f"/v1/agents/{agent['id']}/messages"
    assert api.post(path, {"input": "x"}).status == 200
    found = api.get(path).json()
    assert [m["message_type"] for m in found] == [
        "system_message",
        "user_message",
        "reasoning_message",
        "assistant_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert len({m["id"] for m in found[2:5]}) == 1
    assert len({m["otid"] for m in found}) == len(found)
    query = (
        "include_return_message_types=user_message&include_return_message_types=tool_call_message"
    )
    chosen = api.get(f"{path}?{query}").json()
    assert [m["message_type"] for m in chosen] == ["user_message", "tool_call_message"]


def test_the_users_words_are_kept_when_the_model_fails(api: Api, provider: Any) -> None:
    agent = make_agent(api)
    path = f"/v1/agents/{agent['id']}/messages"
    error = ProviderError("llm_rate_limit", "slow down")
    provider.enqueue(Reply(error=error), "Fine.")
    assert api.post(path, {"input": "first"}).status == 429
    assert [m["content"] for m in api.get(path).json()][1:] == ["first"]
    assert api.post(path, {"input": "second"}).status == 200
    assert [m["content"] for m in api.get(path).json()][1:] == ["first", "second", "Fine."]


def test_the_three_forms_of_a_message_say_the_same(api: Api, provider: Any) -> None:
    agent = make_agent(api)
    path = f"/v1/agents/{agent['id']}/messages"
    parts = [{"type": "text", "text": "Hello"}]
    for body in (
        {"message": "Hello"},
        {"input": "Hello"},
        {"input": parts},
        {"messages": [{"role": "user", "content": "Hello"}]},
        {"messages": [{"role": "user", "content": parts}]},
    ):
        assert api.post(path, body).status == 200, body
    said = [m for m in api.get(path).json() if m["message_type"] == "user_message"]
    assert [m["content"] for m in said] == ["Hello"] * 5


def test_the_pieces_of_a_stream_are_the_stored_message(api: Api, provider: Any) -> None:
    agent = make_agent(api)
    text = "Grüße,  with\n\nlines and 🎻 "
    provider.enqueue(text)
    body = {"input": "x", "stream_tokens": True}
    frames = api.post(f"/v1/agents/{agent['id']}/messages/stream", body).frames()
    pieces = [f["content"] for f in frames[:-1] if f["message_type"] == "assistant_message"]
    stored = api.get(f"/v1/agents/{agent['id']}/messages").json()[-1]["content"]
    assert len(pieces) > 1
    assert "".join(pieces) == stored == text


def test_the_messages_of_all_agents_in_one_list(api: Api) -> None:
    agents = [make_agent(api) for _ in range(2)]
    for number in range(2):
        for agent in agents:
            api.post(f"/v1/agents/{agent['id']}/messages", {"input": f"{number}"})
    everything = api.get("/v1/messages/?limit=1000").json()
    said = [m["content"] for m in everything if m["message_type"] == "user_message"]
    assert said == ["1", "1", "0", "0"], "newest first"
    found, cursor = [], ""
    while batch := api.get(f"/v1/messages?limit=3{cursor}").json():
        found += batch
        cursor = f"&after={batch[-1]['id']}"
    assert found == everything, "each one once"
    upwards = api.get("/v1/messages?order=asc&limit=1000").json()
    assert [m["id"] for m in upwards] == [m["id"] for m in everything][::-1]
    deleted = api.delete(f"/v1/agents/{agents[0]['id']}")
    assert deleted.status == 200
    assert len(api.get("/v1/messages?limit=1000").json()) == len(everything) / 2
