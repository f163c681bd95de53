"""Agent files come in, in every form in use, all or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.models import Agent, AgentSecret, Block, Tool
from conversations.agent_files import importing, staging
from conversations.agent_files.document import read_document
from conversations.agent_files.reading import read_entities
from conversations.models import Message
from conversations.services.rebuild import rebuild_index
from souveraine.errors import InvalidArgument
from tests.agent_files.files import agent, call, document, message, single_agent, upload
from tests.conftest import Api, make_agent


def imported(api: Api, file: Any, **form: Any) -> dict[str, Any]:
    answer = upload(api, file, **form)
    assert answer.status == 200, answer.body
    ids = answer.json()["agent_ids"]
    found = api.get(f"/v1/agents/{ids[0]}").json()
    found["notices"], found["ids"] = answer.json()["notices"], ids
    return found  # type: ignore[no-any-return]


def listed(api: Api, agent_id: str) -> list[dict[str, Any]]:
    return api.get(f"/v1/agents/{agent_id}/messages").json()  # type: ignore[no-any-return]


def test_the_present_form(api: Api, provider: Any) -> None:
    found = imported(api, document())
    assert found["name"] == "Sam_copy"
    assert found["system"] == "You are Sam."
    assert found["tags"] == ["b", "a"]
    assert (found["description"], found["metadata"]) == ("A friend", {"k": "v"})
    assert found["model"] == "fake/fake-model"
    assert found["llm_config"]["context_window"] == 16000
    assert found["model_settings"]["temperature"] == 0.7
    assert [t["name"] for t in found["tools"]] == ["conversation_search", "roll"]
    human = next(b for b in found["blocks"] if b["label"] == "human")
    assert (human["value"], human["limit"]) == ("Name: Chad", 2000)
    assert {b["label"] for b in found["blocks"]} == {"human", "persona", "subconscious"}
    assert found["enable_sleeptime"] is None
    assert found["_souveraine"]["n1_enabled"] is True
    assert [m["message_type"] for m in listed(api, found["id"])] == [
        "system_message",
        "user_message",
        "assistant_message",
        "user_message",
        "reasoning_message",
        "assistant_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    question = listed(api, found["id"])[3]
    assert question["otid"] == "36e1824e-2bf1-41b7-9ad1-864cd5062158"
    assert question["date"] == "2025-10-31T22:56:03+00:00"
    assert len(found["message_ids"]) == 5
    provider.enqueue("Four, I said.")
    sent = api.post(f"/v1/agents/{found['id']}/messages", {"input": "What was it?"})
    assert sent.status == 200
    shown = [(m.role, m.content) for m in provider.requests[-1].messages][1:]
    assert shown == [
        ("user", "Question"),
        ("assistant", "Rolling."),
        ("tool", "4"),
        ("assistant", "It is 4."),
        ("user", "What was it?"),
    ]
    assert "Name: Chad" in provider.requests[-1].messages[0].content


@pytest.mark.parametrize("times", [1, 2])
def test_the_file_inside_of_a_json_string(idle_api: Api, times: int) -> None:
    text: Any = document()
    for _ in range(times):
        text = json.dumps(text)
    found = imported(idle_api, b"\xef\xbb\xbf" + json.dumps(text).encode())
    assert len(listed(idle_api, found["id"])) == 9


def test_the_single_agent_of_2025(api: Api, provider: Any) -> None:
    found = imported(api, single_agent())
    assert found["name"] == "old_sam_copy"
    assert found["agent_type"] == "memgpt_agent"
    assert (found["tags"], found["metadata"]) == (["t1", "t2"], {"old": True})
    assert [t["name"] for t in found["tools"]] == ["send_message", "roll"]
    assert [rule["tool_name"] for rule in found["tool_rules"]] == ["send_message"]
    assert found["model"] == "fake/fake-model"
    persona = next(b for b in found["blocks"] if b["label"] == "persona")
    assert (persona["value"], persona["limit"], persona["metadata"]) == ("I am Sam.", 9, {"m": 1})
    told = " ".join(found["notices"])
    for word in ("gpt-4", "TOKEN", "unheard_of", "longer than its limit"):
        assert word in told
    messages = listed(api, found["id"])[1:]
    assert [(m["message_type"], m.get("content")) for m in messages] == [
        ("user_message", "Hi Sam"),
        ("reasoning_message", None),
        ("assistant_message", "Hello Chad!"),
        ("reasoning_message", None),
        ("tool_call_message", None),
        ("tool_return_message", None),
    ]
    assert (messages[-1]["tool_return"], messages[-1]["status"]) == ("no such word", "error")
    assert api.post(f"/v1/agents/{found['id']}/messages", {"input": "And?"}).status == 200
    assert [m.role for m in provider.requests[-1].messages] == [
        "system",
        "user",
        "assistant",
        "assistant",
        "tool",
        "user",
    ]


def test_older_names_of_fields(idle_api: Api) -> None:
    old = agent(
        block_ids=[],
        tool_ids=[],
        memory={"blocks": [{"label": "human", "value": "Old", "metadata_": {"x": 1}}]},
        tools=[
            "memory_insert",
            {"name": "roll", "json_schema": document()["tools"][1]["json_schema"]},
        ],
        metadata=None,
        metadata_={"y": 2},
        message_ids=["message-6"],
        in_context_message_ids=None,
        messages=[
            {"role": "system", "text": "compiled"},
            {"role": "user", "text": "Hello", "id": "message-5"},
            {"role": "assistant", "content": "Hi", "id": "message-6"},
        ],
    )
    found = imported(idle_api, {"agents": [old]})
    assert [t["name"] for t in found["tools"]] == ["memory_insert", "roll"]
    human = next(b for b in found["blocks"] if b["label"] == "human")
    assert (human["value"], human["metadata"]) == ("Old", {"x": 1})
    assert found["metadata"] == {"y": 2}
    assert len(found["message_ids"]) == 2
    assert [m["content"] for m in listed(idle_api, found["id"])][1:] == ["Hello", "Hi"]


def test_a_main_agent_with_its_sleeptime_agent(idle_api: Api, data_dir: Path) -> None:
    main = agent(0, block_ids=["block-0", "block-1"], group_ids=["group-0"])
    sleeper = agent(1, name="Sam-sleeptime", agent_type="sleeptime_agent", block_ids=["block-1"])
    group = {
        "id": "group-0",
        "agent_ids": ["agent-1"],
        "description": "",
        "manager_config": {
            "manager_type": "sleeptime",
            "manager_agent_id": "agent-0",
            "sleeptime_agent_frequency": 5,
        },
        "shared_block_ids": ["block-1"],
    }
    found = imported(idle_api, document(main, sleeper, groups=[group]))
    first, second = found["ids"]
    assert found["enable_sleeptime"] is True
    groups = idle_api.get("/v1/groups/").json()
    assert len(groups) == 1
    assert groups[0]["manager_type"] == "sleeptime"
    assert groups[0]["manager_agent_id"] == first
    assert groups[0]["agent_ids"] == [second]
    assert groups[0]["sleeptime_agent_frequency"] == 5
    of_both = [
        next(
            b for b in idle_api.get(f"/v1/agents/{pk}").json()["blocks"] if b["label"] == "project"
        )
        for pk in (first, second)
    ]
    assert of_both[0]["id"] == of_both[1]["id"] == groups[0]["shared_block_ids"][0]
    for pk in (first, second):
        file = data_dir / "agents" / pk.removeprefix("agent-") / "memory.git/system/project.md"
        assert "Apollo" in file.read_text()


def test_the_form_overrides_the_file(idle_api: Api) -> None:
    found = imported(
        idle_api,
        document(agent(secrets={"A": "1"})),
        name="Max",
        strip_messages="true",
        secrets=json.dumps({"B": "2"}),
        embedding="fake/embed",
    )
    assert (found["name"], found["embedding"]) == ("Max", "fake/embed")
    assert len(found["message_ids"]) == 1
    rows = AgentSecret.objects.filter(agent_id=found["id"].removeprefix("agent-"))
    assert {row.key for row in rows} == {"A", "B"}
    assert all(row.value_encrypted not in ("1", "2") for row in rows)
    shown = idle_api.get(f"/v1/agents/{found['id']}?include=agent.secrets").json()["secrets"]
    assert [s["value"] for s in shown] == ["", ""]
    plain = imported(idle_api, document(), append_copy_suffix="false")
    assert plain["name"] == "Sam"
    refused = upload(idle_api, document(), model="fake/nothing")
    assert refused.status == 404
    assert upload(idle_api, document(), secrets="[1]").status == 422


def test_own_tools_are_changed_only_when_that_is_wanted(idle_api: Api) -> None:
    source = 'def roll() -> str:\n    """Mine."""\n    return ""\n'
    mine = idle_api.post("/v1/tools", {"source_code": source}).json()
    kept = imported(idle_api, document(), override_existing_tools="false")
    assert mine["id"] in [t["id"] for t in kept["tools"]]
    assert idle_api.get(f"/v1/tools/{mine['id']}").json()["source_code"] == source
    changed = imported(idle_api, document())
    assert mine["id"] in [t["id"] for t in changed["tools"]]
    assert "sides" in idle_api.get(f"/v1/tools/{mine['id']}").json()["source_code"]
    builtin = {"id": "tool-0", "name": "memory_insert", "tool_type": "custom", "source_code": "x"}
    found = imported(idle_api, document(agent(tool_ids=["tool-0"]), tools=[builtin]))
    assert found["tools"][0]["tool_type"] != "custom"


def test_a_dry_run_says_what_would_happen_and_does_nothing(idle_api: Api) -> None:
    make_agent(idle_api, name="Sam_copy")
    file = document(
        agent(llm_config={"handle": "zai/glm-5", "model": "glm-5", "context_window": 200000})
    )
    file["tools"].append({"id": "tool-2", "name": "shell", "tool_type": "external_mcp"})
    file["agents"][0]["tool_ids"].append("tool-2")
    before = (Agent.objects.count(), Tool.objects.count(), Block.objects.count())
    answer = upload(idle_api, file, dry_run="true")
    assert answer.status == 200
    told = answer.json()
    assert told["missing_tools"] == ["shell"]
    assert told["missing_models"] == ["zai/glm-5"]
    assert told["name_clashes"] == ["Sam_copy"]
    assert told["new_tools"] == ["roll"]
    assert told["agents"] == [
        {
            "file_id": "agent-0",
            "name": "Sam_copy",
            "model": "fake/fake-model",
            "blocks": ["human"],
            "tools": ["conversation_search", "roll"],
            "num_messages": 6,
            "num_passages": 0,
        }
    ]
    assert before == (Agent.objects.count(), Tool.objects.count(), Block.objects.count())
    done = upload(idle_api, file)
    assert any("shell" in notice for notice in done.json()["notices"])
    window = idle_api.get(f"/v1/agents/{done.json()['agent_ids'][0]}").json()["llm_config"]
    assert window["context_window"] == 32768


def test_a_failure_in_the_middle_leaves_nothing(
    idle_api: Api, data_dir: Path, monkeypatch: Any
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise InvalidArgument("no group")

    before = (Agent.objects.count(), Tool.objects.count(), Message.objects.count())
    monkeypatch.setattr(importing, "group_from_file", fail)
    answer = upload(idle_api, document(agent(0), agent(1), groups=[{"id": "g"}]))
    assert answer.status == 400
    assert before == (Agent.objects.count(), Tool.objects.count(), Message.objects.count())
    assert list((data_dir / "agents").glob("*")) == []


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "no agents"),
        (b'{"agents": []}', "no agents"),
        (b'{"agents": [1]}', "list of objects"),
        (b'{"agents": {}}', "list of objects"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "nested"),
        (b'{"agents": [{"x": ' + b"[" * 200 + b"]" * 200 + b"}]}", "nested"),
        (json.dumps(json.dumps(json.dumps(json.dumps("x")))).encode(), "no JSON"),
    ],
)
def test_what_is_no_agent_file_is_400(idle_api: Api, raw: bytes, says: str) -> None:
    answer = upload(idle_api, raw)
    assert answer.status == 400
    assert answer.json()["detail"].startswith("INVALID_ARGUMENT: Corrupted agent file format")
    assert says in answer.json()["detail"]


def test_a_request_without_a_file_is_422(idle_api: Api) -> None:
    assert idle_api.post("/v1/agents/import", {"file": "x"}).status == 400
    answer = idle_api.request(
        "POST",
        "/v1/agents/import",
        body=b"--b--\r\n",
        headers={"content-type": "multipart/form-data; boundary=b"},
    )
    assert answer.status in (400, 422)


def test_odd_content_is_left_out_and_named(idle_api: Api) -> None:
    odd = agent(
        tags="none",
        max_files_open=-3,
        tool_ids=["tool-9"],
        block_ids=["block-0", "block-2", "block-3", "block-9"],
        messages=[
            message(0, "system", "p"),
            {"role": "nobody"},
            7,
            message(1, "user", "a\x00b\ud800c"),
            message(2, "tool", "lost", tool_call_id="call_x"),
            message(3, "approval", "", tool_calls=[call("call_y", "roll")]),
            message(
                4, "approval", "", approve=False, denial_reason="no", approval_request_id="call_y"
            ),
            message(5, "summary", "What was said."),
            message(6, "assistant", None, tool_calls=[{"id": 3, "function": {"name": "roll"}}]),
        ],
        in_context_message_ids=["message-0"],
    )
    file = document(odd)
    file["blocks"] += [
        {"id": "block-2", "label": "human", "value": "second"},
        {"id": "block-3", "label": "../x y", "value": "third"},
        {"id": "block-4", "value": "no label"},
    ]
    found = imported(idle_api, file)
    labels = {b["label"]: b["value"] for b in found["blocks"]}
    assert labels["human"] == "Name: Chad"
    assert labels["human_2"] == "second"
    assert "third" in labels.values()
    told = " ".join(found["notices"])
    for word in ("tags", "max_files_open", "tool-9", "block-9", "2 messages", "human_2"):
        assert word in told, word
    assert [m["message_type"] for m in listed(idle_api, found["id"])][1:] == [
        "user_message",
        "tool_return_message",
        "approval_request_message",
        "approval_response_message",
        "summary_message",
        "tool_call_message",
    ]
    assert listed(idle_api, found["id"])[1]["content"] == "a\ufffdb\ufffdc"


NAMES = [
    "agents",
    "blocks",
    "tools",
    "groups",
    "messages",
    "role",
    "content",
    "tool_calls",
    "id",
    "name",
]
NAMES += ["function", "label", "value", "tool_returns", "core_memory", "json_schema", "llm_config"]
NAMES += [
    "block_ids",
    "tool_ids",
    "tool_rules",
    "in_context_message_ids",
    "memory",
    "tags",
    "secrets",
]
leaves = st.sampled_from(
    [None, True, 0, -1, 10**30, 1.5, "", "x", "user", "tool", "assistant", [], {}]
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.sampled_from(NAMES), st.lists(trees, max_size=2) | trees, max_size=6), trees
)
def test_no_document_breaks_the_reader(top: dict[str, Any], agent_fields: Any) -> None:
    for file in (top, {**top, "agents": [agent_fields if isinstance(agent_fields, dict) else {}]}):
        try:
            read_entities(read_document(json.dumps(file).encode()))
        except InvalidArgument:
            continue


def test_the_index_can_be_rebuilt_from_the_files_of_an_import(
    idle_api: Api, data_dir: Path
) -> None:
    found = imported(idle_api, document())
    folder = data_dir / "agents" / found["id"].removeprefix("agent-")
    lines = next((folder / "conversations").glob("*.jsonl")).read_text().splitlines()
    assert len(lines) == 7
    rows = Message.objects.filter(agent_id=folder.name).order_by("sequence")
    texts = list(rows.values_list("text", flat=True))
    Agent.objects.all().delete()
    Block.objects.all().delete()
    assert rebuild_index().messages == 7
    assert list(rows.values_list("text", flat=True)) == texts


def test_many_messages_come_in_short_transactions(api: Api, monkeypatch: Any) -> None:
    whole = [m["id"] for m in listed(api, imported(api, document())["id"])]
    monkeypatch.setattr(staging, "STAGED_ROWS", 2)
    monkeypatch.setattr(staging, "BATCH", 4)
    found = imported(api, document())
    assert len(listed(api, found["id"])) == len(whole)
    assert listed(api, found["id"])[0]["message_type"] == "system_message"
    assert len(found["message_ids"]) == 5
    assert f"AGENT_ID: {found['id']}" in listed(api, found["id"])[0]["content"]
    assert found["hidden"] is None
    assert found["id"] in [a["id"] for a in api.get("/v1/agents").json()]
    assert api.post(f"/v1/agents/{found['id']}/messages", {"input": "And?"}).status == 200


def test_many_messages_of_a_failed_import_are_gone(
    idle_api: Api, data_dir: Path, monkeypatch: Any
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        assert Message.objects.count() > 6
        raise InvalidArgument("no")

    monkeypatch.setattr(staging, "STAGED_ROWS", 2)
    monkeypatch.setattr(importing, "imported_tool", lambda *args: None)
    monkeypatch.setattr(importing, "save_draft", fail)
    assert upload(idle_api, document()).status == 400
    assert (Agent.objects.count(), Message.objects.count()) == (0, 0)
    assert list((data_dir / "agents").glob("*")) == []


def test_what_a_crash_left_is_removed_by_a_later_import(idle_api: Api, monkeypatch: Any) -> None:
    monkeypatch.setattr(staging, "STAGED_ROWS", 2)
    left = imported(idle_api, document())["id"].removeprefix("agent-")
    kept = imported(idle_api, document())["id"].removeprefix("agent-")
    old = timezone.now() - staging.ABANDONED * 2
    Agent.objects.filter(pk=left).update(config=staging.MARK, hidden=True, created_at=old)
    Agent.objects.filter(pk=kept).update(config=staging.MARK, hidden=True)  # one that goes on now
    imported(idle_api, document())
    assert not Agent.objects.filter(pk=left).exists()
    assert Agent.objects.filter(pk=kept).exists()


def test_a_file_that_does_not_fit_into_memory_comes_in(idle_api: Api) -> None:
    long = agent(messages=[message(0, "system", "p"), message(1, "user", "word " * 600_000)])
    found = imported(idle_api, document(long), name="Max")
    assert found["name"] == "Max"
    assert len(listed(idle_api, found["id"])[1]["content"]) == 3_000_000
