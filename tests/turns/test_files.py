"""The conversation mirror and the rebuilding of a lost database from the agents' files."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from agents.models import Agent, Block
from conversations.models import Conversation, Message
from conversations.services import mirror
from conversations.services.rebuild import rebuild_index
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent, wait_for


def folder_of(data_dir: Path, agent: dict[str, Any]) -> Path:
    return data_dir / "agents" / agent["id"].removeprefix("agent-")


def mirror_of(data_dir: Path, agent: dict[str, Any], conversation: dict[str, Any]) -> Path:
    return folder_of(data_dir, agent) / "conversations" / f"{conversation['id']}.messages.jsonl"


def talk(api: Api, agent: dict[str, Any], text: str) -> dict[str, Any]:
    conversation: dict[str, Any] = api.post(
        f"/v1/conversations/?agent_id={agent['id']}", {"summary": "S"}
    ).json()
    assert (
        api.post(f"/v1/conversations/{conversation['id']}/messages", {"input": text}).types()[-1]
        == "[DONE]"
    )
    return conversation


def sequences(path: Path) -> list[int]:
    return [json.loads(line)["sequence"] for line in path.read_text().splitlines()]


def test_the_mirror_follows_each_turn(api: Api, agent: dict[str, Any], data_dir: Path) -> None:
    conversation = talk(api, agent, "hello")
    path = mirror_of(data_dir, agent, conversation)
    wait_for(lambda: path.exists() and sequences(path) == [1, 2, 3])
    api.post(f"/v1/conversations/{conversation['id']}/messages", {"input": "again"})
    wait_for(lambda: sequences(path) == [1, 2, 3, 4, 5])
    document = json.loads(path.with_name(f"{conversation['id']}.json").read_text())
    assert (document["summary"], document["agent_id"]) == ("S", agent["id"])


def test_a_half_written_line_is_cut_off_and_written_anew(
    api: Api, agent: dict[str, Any], data_dir: Path
) -> None:
    conversation = talk(api, agent, "hello")
    path = mirror_of(data_dir, agent, conversation)
    wait_for(lambda: path.exists() and sequences(path) == [1, 2, 3])
    whole = path.read_text()
    path.write_text(whole[: whole.rindex("\n", 0, -1) + 20])
    row = Conversation.objects.get(pk=uuid.UUID(conversation["id"].removeprefix("conv-")))
    assert mirror.append_messages(row) == 1
    assert path.read_text() == whole
    assert mirror.append_messages(row) == 0


def test_a_lost_database_is_rebuilt_from_the_files(api: Api, provider: Any, data_dir: Path) -> None:
    agent = make_agent(api, tags=["b", "a"], description="D", metadata={"k": 1})
    provider.enqueue(
        Reply(
            text="Noted.", tool_calls=[Call("memory_insert", {"label": "human", "new_string": "x"})]
        ),
        "Yes.",
    )
    conversation = talk(api, agent, "hello")
    path = mirror_of(data_dir, agent, conversation)
    wait_for(lambda: path.exists() and len(sequences(path)) == 5)
    keys = (
        "name",
        "description",
        "metadata",
        "tags",
        "model",
        "system",
        "llm_config",
        "created_at",
        "_souveraine",
    )
    before = api.get(f"/v1/agents/{agent['id']}").json()
    said = api.get(f"/v1/conversations/{conversation['id']}/messages").json()
    broken = data_dir / "agents" / str(uuid.uuid4())
    broken.mkdir()
    (broken / "agent.json").write_text("{")

    Agent.objects.all().delete()
    Block.objects.all().delete()
    assert not Message.objects.exists()
    report = rebuild_index()

    assert (report.agents, report.conversations, report.messages) == (
        1,
        2,
        5,
    )  # with the default conversation, in which nothing was said
    assert len(report.problems) == 1, "the broken file is told and hides nothing"
    after = api.get(f"/v1/agents/{agent['id']}").json()
    assert [after[key] for key in keys[:-1]] == [before[key] for key in keys[:-1]]
    assert [
        (b["id"], b["label"], b["value"]) for b in sorted(after["blocks"], key=lambda b: b["label"])
    ] == [
        (b["id"], b["label"], b["value"])
        for b in sorted(before["blocks"], key=lambda b: b["label"])
    ]
    assert [t["name"] for t in after["tools"]] == [t["name"] for t in before["tools"]]
    again = api.get(f"/v1/conversations/{conversation['id']}/messages").json()
    assert [(m["id"], m["message_type"]) for m in again] == [
        (m["id"], m["message_type"]) for m in said
    ]
    assert rebuild_index().agents == 0
    sent = api.post(f"/v1/conversations/{conversation['id']}/messages", {"input": "still there?"})
    assert sent.types()[-1] == "[DONE]"
