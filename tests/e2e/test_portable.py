"""Agents, conversations and messages that move, with the unmodified Python SDK: export, import, fork, reset."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, Letta

from tests.agent_files.files import document, single_agent
from tests.e2e.conftest import Serve
from tests.e2e.test_python_sdk import user


@pytest.fixture
def client(server: Serve) -> Letta:
    return Letta(base_url=server.url, api_key="local-dev-key")


def texts(client: Letta, conversation_id: str) -> list[Any]:
    kinds = ("user_message", "assistant_message")
    listed = client.conversations.messages.list(conversation_id, order="asc")
    return [m.content for m in listed if m.message_type in kinds]


def test_an_agent_goes_out_and_comes_in(client: Letta) -> None:
    agent = client.agents.create(
        name="Ani",
        model="openai/double",
        memory_blocks=[{"label": "human", "value": "Name: Bob"}],
        tags=["t"],
    )
    client.agents.messages.create(agent.id, messages=user("hi", text="Good morning"))
    file = client.agents.export_file(agent.id)
    assert json.loads(file)["agents"][0]["name"] == "Ani"
    made = client.agents.import_file(file=file.encode(), model="openai/double")
    copy = client.agents.retrieve(made.agent_ids[0], include=["agent.blocks", "agent.tags"])
    assert (copy.name, copy.tags) == ("Ani_copy", ["t"])
    assert next(b.value for b in copy.blocks if b.label == "human") == "Name: Bob"
    said = [getattr(m, "content", None) for m in client.agents.messages.list(copy.id)]
    assert said[-1] == "Good morning"
    answer = client.agents.messages.create(copy.id, messages=user("you?", text="Still Ani"))
    assert answer.messages[-1].content == "Still Ani"


@pytest.mark.parametrize("form", ["several entities", "single agent", "inside of a string"])
def test_files_of_other_servers_come_in(client: Letta, form: str) -> None:
    file: Any = single_agent() if form == "single agent" else document()
    file = json.dumps(file) if form == "inside of a string" else file
    made = client.agents.import_file(
        file=("sam.af", json.dumps(file).encode()), model="openai/double", name="Sam"
    )
    assert client.agents.retrieve(made.agent_ids[0]).name == "Sam"
    answer = client.agents.messages.create(made.agent_ids[0], messages=user("hi", text="Hello"))
    assert answer.messages[-1].content == "Hello"
    with pytest.raises(APIStatusError) as refused:
        client.agents.import_file(file=b"{}")
    assert refused.value.status_code == 400


def test_conversations_fork_and_are_archived(client: Letta) -> None:
    agent = client.agents.create(name="forks", model="openai/double")
    source = client.conversations.create(
        agent_id=agent.id, summary="S", extra_body={"isolated_block_labels": ["human"]}
    )
    assert source.summary == "S"
    for number in (1, 2):
        sent = user(f"q{number}", text=f"a{number}")
        list(client.conversations.messages.create(source.id, messages=sent))
    first = next(
        m.id
        for m in client.conversations.messages.list(source.id)
        if getattr(m, "content", None) == "a1"
    )
    fork = client.conversations.fork(source.id, message_id=first)
    assert len(texts(client, fork.id)) == 2
    list(client.conversations.messages.create(fork.id, messages=user("other", text="way")))
    assert texts(client, fork.id)[1::2] == ["a1", "way"]
    assert texts(client, source.id)[1::2] == ["a1", "a2"]
    whole = client.conversations.fork("default", agent_id=agent.id, hidden=True)
    assert whole.agent_id == agent.id
    assert client.conversations.update(fork.id, archived=True).archived
    listed = {c.id for c in client.conversations.list(agent_id=agent.id)}
    assert listed == {source.id}
    put_away = client.conversations.list(agent_id=agent.id, archive_status="archived")
    assert [c.id for c in put_away] == [fork.id]


def test_messages_reset_and_are_read_one_by_one(client: Letta) -> None:
    agent = client.agents.create(name="reset", model="openai/double")
    answer = client.agents.messages.create(agent.id, messages=user("hi", text="Hello"))
    parts = client.messages.retrieve(answer.messages[-1].id)
    assert [p.content for p in parts] == ["Hello"]
    assert "Hello" in [getattr(m, "content", None) for m in client.messages.list()]
    state = client.agents.messages.reset(agent.id, add_default_initial_messages=False)
    assert state is not None
    assert len(state.message_ids or []) == 1
    assert len(list(client.agents.messages.list(agent.id, conversation_id="default"))) == 1


def test_identities_and_tags(client: Letta, server: Serve) -> None:
    agent = client.agents.create(name="known", model="openai/double", tags=["mine"])
    body = {"identifier_key": "u", "name": "U", "identity_type": "user"}
    identity = httpx.post(f"{server.url}/v1/identities/", json=body).json()["id"]
    client.agents.identities.attach(identity, agent_id=agent.id)
    found = client.agents.retrieve(agent.id, include=["agent.identities"])
    assert [i.id for i in found.identities or []] == [identity]
    assert "mine" in [str(tag) for tag in client.tags.list()]
    client.agents.identities.detach(identity, agent_id=agent.id)
    assert client.agents.retrieve(agent.id, include=["agent.identities"]).identities == []
