"""Agent files go out in the old server's shape, and what went out comes in again the same."""

from __future__ import annotations

from typing import Any

from souveraine.testing.fake_provider import Call, Reply
from tests.agent_files.files import agent, document, upload
from tests.conftest import Api, make_agent

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# The keys of a file of the old server (0.16.8), in its order.
KEYS_TEXT = """
document: agents groups blocks files sources tools mcp_servers skills metadata created_at

agents: name memory_blocks tools tool_ids source_ids folder_ids block_ids tool_rules tags system
agent_type initial_message_sequence include_base_tools include_multi_agent_tools
include_base_tool_rules include_default_source description metadata llm_config embedding_config
model embedding model_settings compaction_settings context_window_limit embedding_chunk_size
max_tokens max_reasoning_tokens enable_reasoner reasoning from_template template project
tool_exec_environment_variables secrets memory_variables project_id template_id base_template_id
identity_ids message_buffer_autoclear enable_sleeptime response_format timezone max_files_open
per_file_view_window_char_limit hidden parallel_tool_calls id in_context_message_ids messages
files_agents group_ids

messages: type otid group_id role content name sender_id batch_item_id id model agent_id tool_calls
tool_call_id tool_returns created_at approve approval_request_id denial_reason approvals

blocks: value limit project_id template_name is_template template_id base_template_id deployment_id
entity_id preserve_on_migration label read_only description metadata hidden tags id

tools: id tool_type description source_type name tags source_code json_schema args_json_schema
return_char_limit pip_requirements npm_requirements default_requires_approval
enable_parallel_execution created_by_id last_updated_by_id metadata_ project_id
"""
KEYS = {
    part.partition(":")[0].strip(): part.partition(":")[2].split()
    for part in KEYS_TEXT.split("\n\n")
}


def export(api: Api, agent_id: str, query: str = "") -> dict[str, Any]:
    answer = api.get(f"/v1/agents/{agent_id}/export{query}")
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def comparable(file: dict[str, Any]) -> dict[str, Any]:
    """The file without what must differ: names, the compiled prompts, the time."""
    for one in file["agents"]:
        one["name"] = one["name"].replace("_copy", "")
        for message in one["messages"][:1]:
            message["content"] = message["created_at"] = None
    return {**file, "created_at": None}


def test_a_round_trip_is_equal(api: Api, provider: Any) -> None:
    made = make_agent(
        api,
        name="Ani",
        tags=["x", "y"],
        description="d",
        metadata={"m": [1]},
        tool_rules=[{"type": "exit_loop", "tool_name": "memory_insert"}],
        timezone="Europe/Berlin",
        compaction_settings={"mode": "all"},
        _souveraine={"n1_enabled": False},
        model_settings={"temperature": 0.3},
    )
    api.post("/v1/tools", {"source_code": 'def roll() -> str:\n    """R."""\n    return ""\n'})
    insert = Call("memory_insert", {"label": "human", "new_string": "Likes jam"})
    provider.enqueue(
        Reply(text="Let me.", reasoning="Hm.", tool_calls=[insert]), "Done.", Reply(text="Yes.")
    )
    path = f"/v1/agents/{made['id']}/messages"
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
    }
    assert api.post(path, {"input": "Remember jam"}).status == 200
    parts = [{"type": "text", "text": "See"}, picture]
    assert api.post(path, {"input": parts}).status == 200
    for number in range(2):
        passage = {"text": f"Fact {number} of jam", "tags": ["b", "a"]}
        assert api.post(f"/v1/agents/{made['id']}/archival-memory", passage).status == 200
    first = export(api, made["id"])
    answer = upload(api, first)
    assert answer.json()["notices"] == []
    copy = f"/v1/agents/{answer.json()['agent_ids'][0]}/archival-memory"
    assert len(api.get(f"{copy}/search?query=jam&tags=a").json()["results"]) == 2
    second = export(api, answer.json()["agent_ids"][0])
    assert second["agents"][0]["name"] == "Ani_copy"
    assert comparable(second) == comparable(first)
    roles = ["system", "user", "assistant", "tool", "user", "assistant"]
    assert [m["role"] for m in first["agents"][0]["messages"]] == roles


def test_a_foreign_file_round_trips_from_its_first_import_on(api: Api) -> None:
    first = export(api, upload(api, document()).json()["agent_ids"][0])
    second = export(api, upload(api, first).json()["agent_ids"][0])
    assert comparable(second) == comparable(first)
    assert len(first["agents"][0]["in_context_message_ids"]) == 5


def test_a_group_round_trips(api: Api) -> None:
    group = {
        "id": "group-0",
        "agent_ids": ["agent-1"],
        "description": "d",
        "manager_config": {"manager_type": "sleeptime", "manager_agent_id": "agent-0"},
        "shared_block_ids": ["block-1"],
    }
    both = ["block-0", "block-1"]
    file = document(
        agent(0, block_ids=both), agent(1, name="Z", block_ids=["block-1"]), groups=[group]
    )
    first = export(api, upload(api, file).json()["agent_ids"][0])
    assert [a["name"] for a in first["agents"]] == ["Sam_copy", "Z_copy"]
    assert first["groups"][0]["manager_config"]["manager_agent_id"] == "agent-0"
    second = export(api, upload(api, first).json()["agent_ids"][0])
    assert comparable(second) == comparable(first)


def test_the_shape_is_the_old_servers(api: Api) -> None:
    made = make_agent(api, tags=["golden"])
    api.post(f"/v1/agents/{made['id']}/messages", {"input": "hello"})
    ours = export(api, made["id"])
    found = {
        "document": ours,
        "messages": ours["agents"][0]["messages"][0],
        **{kind: ours[kind][0] for kind in ("agents", "blocks", "tools")},
    }
    for kind, keys in KEYS.items():
        assert list(found[kind])[: len(keys)] == keys, kind


def test_messages_can_be_left_out_or_be_those_of_a_conversation(api: Api) -> None:
    made = make_agent(api)
    conversation = api.post(f"/v1/conversations?agent_id={made['id']}", {}).json()["id"]
    api.post(f"/v1/conversations/{conversation}/messages", {"input": "there", "streaming": False})
    assert export(api, made["id"], "?scrub_messages=true")["agents"][0]["messages"] == []
    there = export(api, made["id"], f"?conversation_id={conversation}")["agents"][0]["messages"]
    assert [m["content"][0]["text"] for m in there[1:]] == ["there", "Hello there."]
    other = make_agent(api)
    assert api.get(f"/v1/agents/{other['id']}/export?conversation_id={conversation}").status == 422
    assert api.get(f"/v1/agents/{made['id']}/export?use_legacy_format=true").status == 400


def test_secrets_stay_here_and_skills_go_along(api: Api) -> None:
    made = make_agent(api, secrets={"TOKEN": "very secret"})
    answer = api.get(f"/v1/agents/{made['id']}/export")
    assert b"very secret" not in answer.body
    assert answer.json()["agents"][0]["tool_exec_environment_variables"] == {"TOKEN": ""}
    again = upload(api, answer.json()).json()
    assert any("TOKEN" in notice for notice in again["notices"])
    body = {"skills": [{"name": "s", "files": {"SKILL.md": "x"}}], "scrub_messages": True}
    posted = api.post(f"/v1/agents/{made['id']}/export", body).json()
    assert posted["skills"] == [{"name": "s", "files": {"SKILL.md": "x"}, "source_url": None}]
