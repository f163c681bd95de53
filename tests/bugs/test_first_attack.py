"""What a first hostile tester found; each test is one finding."""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from agents.models import Agent, AgentBlock, Block
from agents.services import blocks as block_services
from agents.services import memory
from conversations.models import Conversation, Message, Run
from memfs import API_AUTHOR
from souveraine.events import log
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent, wait_for


def say(api: Api, agent: dict[str, Any], text: str = "hello") -> Any:
    return api.post(f"/v1/agents/{agent['id']}/messages", {"input": text})


def assert_works(api: Api, agent: dict[str, Any]) -> None:
    answer = say(api, agent)
    assert answer.status == 200, answer.body
    assert answer.json()["stop_reason"]["stop_reason"] == "end_turn"


def row_of(agent: dict[str, Any]) -> Agent:
    return Agent.objects.get(pk=uuid.UUID(agent["id"].removeprefix("agent-")))


def file_of(data_dir: Path, agent: dict[str, Any], name: str = "human") -> Path:
    return (
        data_dir
        / "agents"
        / agent["id"].removeprefix("agent-")
        / "memory.git"
        / "system"
        / f"{name}.md"
    )


def shared_block(api: Api, value: str = "start") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    block = api.post("/v1/blocks", {"label": "project", "value": value}).json()
    return block, [make_agent(api, block_ids=[block["id"]]) for _ in range(2)]


def test_no_acknowledged_edit_of_a_shared_block_is_lost(api: Api) -> None:
    block, agents = shared_block(api)
    pk = uuid.UUID(block["id"].removeprefix("block-"))

    def insert(agent: dict[str, Any], word: str) -> None:
        row = row_of(agent)
        block_services.edit_by_agent(row, "project", lambda value: f"{value}\n{word}", API_AUTHOR)

    threads = [
        threading.Thread(target=insert, args=(agent, f"w{number}-{turn}"))
        for number, agent in enumerate(agents)
        for turn in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    words = Block.objects.get(pk=pk).value.split("\n")
    assert sorted(words[1:]) == sorted(f"w{n}-{t}" for n in range(2) for t in range(5))
    for agent in agents:
        memory.sync_blocks(row_of(agent))
    assert Block.objects.get(pk=pk).value.split("\n") == words


def test_a_crash_in_the_middle_of_attach_keeps_the_block(api: Api, data_dir: Path) -> None:
    agent = make_agent(api)
    made = api.post("/v1/blocks", {"label": "project", "value": "ONLY COPY"}).json()
    block = Block.objects.get(pk=uuid.UUID(made["id"].removeprefix("block-")))
    memory.attach_row(row_of(agent), block)  # and here the process dies
    api.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/human", {"value": "other"})
    assert api.get(f"/v1/blocks/{made['id']}").json()["value"] == "ONLY COPY"
    assert file_of(data_dir, agent, "project").read_text().endswith("ONLY COPY")


def test_a_crash_before_the_files_of_a_shared_block_are_written_loses_no_edit(
    api: Api, data_dir: Path
) -> None:
    made, (one, two) = shared_block(api)
    block = Block.objects.get(pk=uuid.UUID(made["id"].removeprefix("block-")))
    block_services._edit_row(
        block, lambda file: type(file)(**{**_fields(file), "value": "v2"})
    )  # and dies
    api.patch(f"/v1/agents/{one['id']}/core-memory/blocks/human", {"value": "other"})
    assert api.get(f"/v1/blocks/{made['id']}").json()["value"] == "v2"
    api.patch(f"/v1/agents/{two['id']}/core-memory/blocks/detach/{made['id']}")
    api.patch(f"/v1/agents/{one['id']}/core-memory/blocks/human", {"value": "again"})
    assert api.get(f"/v1/blocks/{made['id']}").json()["value"] == "v2"
    assert file_of(data_dir, one, "project").read_text().endswith("v2")


def _fields(file: Any) -> dict[str, Any]:
    return {name: getattr(file, name) for name in file.__dataclass_fields__}


def test_the_file_of_a_shared_block_edited_by_hand_is_an_edit_for_all(
    api: Api, data_dir: Path
) -> None:
    _, (one, two) = shared_block(api)
    path = file_of(data_dir, one, "project")
    path.write_text(path.read_text().replace("start", "by hand"))
    assert (
        api.get(f"/v1/agents/{one['id']}/core-memory/blocks/project").json()["value"] == "by hand"
    )
    assert (
        api.get(f"/v1/agents/{two['id']}/core-memory/blocks/project").json()["value"] == "by hand"
    )


BAD_FILES = {
    "latin-1": "Käse".encode("latin-1"),
    "huge limit": b"---\nlimit: 1000000000000000000000000000000\n---\nx",
    "nan": b"---\nmetadata: {a: .nan}\n---\nx",
    "surrogate": b'---\ndescription: "a\\ud800b"\n---\nx',
    "nul": b"a\x00b",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_memory_file_stops_no_turn(
    api: Api, agent: dict[str, Any], data_dir: Path, name: str
) -> None:
    file_of(data_dir, agent).write_bytes(BAD_FILES[name])
    assert_works(api, agent)
    assert api.get(f"/v1/agents/{agent['id']}").status == 200
    other = api.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/persona", {"value": "p"})
    assert (other.status, other.json()["value"]) == (200, "p")
    assert_works(api, agent)


def test_the_agent_cannot_break_itself_with_a_file(api: Api, provider: Any) -> None:
    agent = make_agent(api, tools=["write_file"])
    content = "---\nmetadata: {a: .nan}\n---\nx"
    provider.enqueue(
        Reply(tool_calls=[Call("write_file", {"path": "system/notes.md", "content": content})]),
        "Done.",
    )
    assert_works(api, agent)
    assert_works(api, agent)


def test_a_huge_limit_is_refused(api: Api, agent: dict[str, Any]) -> None:
    body = {"memory_blocks": [{"label": "human", "value": "x", "limit": 10**30}]}
    assert api.patch(f"/v1/agents/{agent['id']}", body).status == 422
    assert api.get(f"/v1/agents/{agent['id']}").status == 200


@pytest.mark.parametrize("content", [b"", b"garbage" * 20])
def test_a_damaged_index_is_mended(
    api: Api, agent: dict[str, Any], data_dir: Path, content: bytes
) -> None:
    index = data_dir / "agents" / agent["id"].removeprefix("agent-") / "repository" / "index"
    index.write_bytes(content)
    assert_works(api, agent)
    changed = api.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/human", {"value": "x"})
    assert changed.status == 200


def test_half_an_emoji_from_the_model_poisons_nothing(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    arguments = '{"label": "human", "new_string": "bad \\ud83d end"}'
    provider.enqueue(Reply(text="a \ud83d b", tool_calls=[Call("memory_insert", arguments)]), "ok")
    assert_works(api, agent)
    provider.enqueue(Reply(tool_calls=[Call("na\ud83dme", {})]), "ok")
    assert_works(api, agent)
    assert_works(api, agent)
    assert api.get(f"/v1/agents/{agent['id']}/messages").status == 200
    for request in provider.requests:
        json.dumps([m.content for m in request.messages], ensure_ascii=False).encode()
        for message in request.messages:
            for call in message.tool_calls:
                json.dumps(json.loads(call.arguments), ensure_ascii=False).encode()


def test_an_emoji_in_two_pieces_arrives_whole(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    from agents.providers.base import FinishDelta, TextDelta

    provider.enqueue(
        Reply(deltas=[TextDelta("so \ud83d"), TextDelta("\ude00 nice"), FinishDelta("stop")])
    )
    assert say(api, agent).json()["messages"][0]["content"] == "so \U0001f600 nice"


@pytest.mark.parametrize("streaming", [True, False])
def test_deleting_an_agent_in_mid_turn_ends_its_streams(
    api: Api, agent: dict[str, Any], provider: Any, streaming: bool
) -> None:
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True))
    answers: list[Any] = []
    body = {"input": "go", "streaming": streaming}
    path = f"/v1/agents/{agent['id']}/messages"
    thread = threading.Thread(target=lambda: answers.append(api.post(path, body)))
    thread.start()
    wait_for(lambda: provider.calls and provider.calls[0].sent >= 1)
    assert api.delete(f"/v1/agents/{agent['id']}").status == 200
    thread.join(20)
    assert answers, "the client is told"
    if streaming:
        ended = {"message_type": "stop_reason", "stop_reason": "cancelled"}
        assert [f for f in answers[0].frames() if f["message_type"] != "ping"] == [ended]
    else:
        assert answers[0].status == 404
        assert "was deleted while it ran" in answers[0].json()["detail"]
    wait_for(lambda: provider.calls[0].is_closed_early)


def test_deleting_the_default_conversation_leaves_the_agent_usable(
    api: Api, agent: dict[str, Any]
) -> None:
    assert_works(api, agent)
    default = Conversation.objects.get(is_default=True)
    assert api.delete(f"/v1/conversations/conv-{default.pk}").status == 200
    assert_works(api, agent)
    listed = api.get(f"/v1/agents/{agent['id']}/messages?conversation_id=default").json()
    assert [m["message_type"] for m in listed] == [
        "system_message",
        "user_message",
        "assistant_message",
    ]


def test_parallel_creation_with_one_id_gives_one_agent(api: Api) -> None:
    body = {"id": f"agent-{uuid.uuid4()}", "name": "x", "model": "fake/fake-model"}
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(api.post("/v1/agents/", body).status))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == [200, 409, 409, 409, 409, 409]
    assert api.get(f"/v1/agents/{body['id']}").status == 200


def test_a_stream_that_is_gone_is_rebuilt_from_the_messages(
    api: Api, agent: dict[str, Any]
) -> None:
    run_id = say(api, agent).json()["messages"][0]["run_id"]
    bare = uuid.UUID(run_id.removeprefix("run-"))
    log.sync_client().delete(log.stream_key(bare), log.meta_key(bare))
    again = api.post(f"/v1/runs/{run_id}/stream", {})
    assert again.types() == ["assistant_message", "stop_reason", "usage_statistics", "[DONE]"]
    assert again.frames()[0]["content"] == "Hello there."


def test_redis_that_forgets_in_mid_turn_costs_the_follower_nothing(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(request: Any) -> Reply:
        reached.set()
        go_on.wait(20)
        return Reply(text="whole answer")

    provider.enqueue(hold)
    answers: list[Any] = []
    path = f"/v1/agents/{agent['id']}/messages/stream"
    thread = threading.Thread(target=lambda: answers.append(api.post(path, {"input": "go"})))
    thread.start()
    assert reached.wait(20)
    run = Run.objects.get()
    log.sync_client().delete(log.stream_key(run.pk), log.meta_key(run.pk))
    go_on.set()
    thread.join(30)
    assert answers[0].types() == ["assistant_message", "stop_reason", "usage_statistics", "[DONE]"]


def test_a_renamed_block_keeps_its_id_and_tags(
    api: Api, agent: dict[str, Any], data_dir: Path
) -> None:
    block = next(b for b in agent["blocks"] if b["label"] == "human")
    api.patch(f"/v1/blocks/{block['id']}", {"tags": ["t"]})
    renamed = api.patch(f"/v1/blocks/{block['id']}", {"label": "person"}).json()
    assert (renamed["id"], renamed["label"], renamed["tags"]) == (block["id"], "person", ["t"])
    path = file_of(data_dir, agent, "person")
    path.rename(path.with_name("friend.md"))  # by hand
    moved = api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/friend").json()
    assert (moved["id"], moved["tags"]) == (block["id"], ["t"])


def test_a_repeated_request_counts_its_message_once(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    from souveraine.errors import ProviderError

    body = {"messages": [{"role": "user", "content": "once", "otid": "x1"}]}
    provider.enqueue(Reply(error=ProviderError("llm_bad_request", "no")), "fine")
    path = f"/v1/agents/{agent['id']}/messages"
    assert api.post(path, body).status == 400
    assert api.post(path, body).status == 200
    assert Conversation.objects.get().message_count == 2


def test_far_dates_in_a_search_are_the_models_fault(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    search = [Call("conversation_search", {"query": "x", "end_date": "9999-12-31"})]
    provider.enqueue(Reply(tool_calls=search), "ok")
    say(api, agent)
    assert "is not a date" in Message.objects.get(role="tool").text


@pytest.mark.parametrize(
    "host",
    [
        "evil.com@localhost",
        "localhost/evil.com",
        "localhost#x",
        "localhost?x",
        "localhost:evil.com",
    ],
)
def test_odd_hosts_are_not_localhost(api: Api, host: str) -> None:
    assert api.get("/v1/agents", headers={"host": host}).status == 401


@pytest.mark.parametrize("header", ["CF-Connecting-IP", "True-Client-IP", "X-Forwarded-Proto"])
def test_more_signs_of_a_proxy(api: Api, header: str) -> None:
    assert api.get("/v1/agents", headers={header: "x"}).status == 401


def test_agent_json_that_cannot_be_written_stops_no_change(
    api: Api, agent: dict[str, Any], data_dir: Path
) -> None:
    path = data_dir / "agents" / agent["id"].removeprefix("agent-") / "agent.json"
    path.unlink()
    path.mkdir()
    (path / "x").touch()
    assert api.patch(f"/v1/agents/{agent['id']}", {"name": "new"}).status == 200
    assert AgentBlock.objects.filter(agent=row_of(agent), is_projected=False).count() == 0
