"""Memory blocks: limits and read_only, sharing, and edits made by people and git in the work tree."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents.models import Block
from souveraine.testing.fake_provider import Call, Reply
from tests.api.paging import walk
from tests.conftest import Api, make_agent


def work_tree(data_dir: Path, agent: dict[str, Any]) -> Path:
    return data_dir / "agents" / agent["id"].removeprefix("agent-") / "memory.git"


def git(tree: Path, *words: str) -> str:
    who = ["-c", "user.name=Eve", "-c", "user.email=eve@example.invalid", "-c", "safe.directory=*"]
    done = subprocess.run(
        ["git", *who, "-C", str(tree), *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def block_path(agent: dict[str, Any], label: str) -> str:
    return f"/v1/agents/{agent['id']}/core-memory/blocks/{label}"


def test_a_value_over_the_limit_is_refused_with_both_numbers(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    human = next(b for b in agent["blocks"] if b["label"] == "human")
    path = block_path(agent, "human")
    for target in (path, f"/v1/blocks/{human['id']}"):
        answer = idle_api.patch(target, {"value": "x" * 50, "limit": 10})
        assert answer.status == 400
        assert "50 characters, its limit is 10" in answer.json()["detail"]
    assert idle_api.patch(path, {"limit": 9}).json()["limit"] == 9
    assert idle_api.patch(path, {"value": "123456789"}).status == 200
    over = idle_api.patch(path, {"value": "1234567890"})
    assert "10 characters, its limit is 9" in over.json()["detail"]
    smaller = idle_api.patch(path, {"limit": 3})
    assert "9 characters, its limit is 3" in smaller.json()["detail"]
    found = idle_api.get(path).json()
    assert (found["value"], found["limit"]) == ("123456789", 9)


def test_limit_null_and_0_mean_unlimited(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    long = "x" * 150_000
    for limit in (None, 0):
        path = block_path(agent, "human")
        assert idle_api.patch(path, {"value": "short", "limit": 5}).status == 200
        assert idle_api.patch(path, {"limit": limit}).json()["limit"] is None
        assert idle_api.patch(path, {"value": long}).json()["value"] == long
        made = idle_api.post("/v1/blocks", {"label": "big", "value": long, "limit": limit})
        assert made.json()["limit"] is None
    assert idle_api.post("/v1/blocks", {"label": "big", "value": long}).status == 400


def test_a_read_only_block_keeps_its_value_until_it_is_unlocked(api: Api, provider: Any) -> None:
    agent = make_agent(api)
    path = block_path(agent, "human")
    assert api.patch(path, {"read_only": True}).json()["read_only"] is True
    refused = api.patch(path, {"value": "changed"})
    assert refused.status == 400
    assert "'human' is read-only" in refused.json()["detail"]
    assert api.patch(path, {"description": "d"}).json()["description"] == "d"
    call = Call("memory_insert", {"label": "human", "new_string": "Likes jam"})
    provider.enqueue(Reply(tool_calls=[call]), "Well.")
    sent = api.post(f"/v1/agents/{agent['id']}/messages", {"input": "x"}).json()
    returned = next(m for m in sent["messages"] if m["message_type"] == "tool_return_message")
    assert returned["status"] == "error"
    assert "read-only" in returned["tool_return"]
    assert api.get(path).json()["value"] == "Name: Bob"
    unlocked = api.patch(path, {"read_only": False, "value": "changed"}).json()
    assert (unlocked["read_only"], unlocked["value"]) == (False, "changed")


def test_every_field_of_a_block_round_trips_and_null_clears(idle_api: Api) -> None:
    fields = {
        "label": "project/plan",
        "value": "---\nnot: front matter\n---\nä\n\n",
        "limit": 500,
        "description": 'two\nlines: "quoted"',
        "read_only": False,
        "metadata": {"k": [1, {"a": None}]},
        "tags": ["a", "b"],
        "hidden": False,
        "project_id": "p",
        "template_name": "t",
    }
    made = idle_api.post("/v1/blocks", fields).json()
    assert made.items() >= fields.items()
    agent = make_agent(idle_api)
    idle_api.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/attach/{made['id']}")
    assert idle_api.get(block_path(agent, "project/plan")).json().items() >= fields.items()
    assert idle_api.get(f"/v1/blocks/{made['id']}").json().items() >= fields.items()
    cleared = idle_api.patch(f"/v1/blocks/{made['id']}", {"description": None, "metadata": None})
    assert cleared.status == 200
    assert (cleared.json()["description"], cleared.json()["metadata"]) == (None, {})
    changed = {"value": "v", "tags": ["c"], "metadata": {"z": 1}, "hidden": True, "limit": 7}
    assert idle_api.patch(f"/v1/blocks/{made['id']}", changed).json().items() >= changed.items()


def test_renaming_a_block_moves_its_file(idle_api: Api, data_dir: Path) -> None:
    agent = make_agent(idle_api)
    renamed = idle_api.patch(block_path(agent, "human"), {"label": "friend", "value": "v"}).json()
    assert (renamed["label"], renamed["value"]) == ("friend", "v")
    assert idle_api.get(block_path(agent, "human")).status == 404
    tree = work_tree(data_dir, agent)
    assert not (tree / "system" / "human.md").exists()
    assert (tree / "system" / "friend.md").read_text().endswith("v")
    taken = idle_api.patch(block_path(agent, "friend"), {"label": "persona"})
    assert taken.status == 409


def test_each_change_is_one_commit_and_none_when_nothing_changes(
    idle_api: Api, data_dir: Path
) -> None:
    agent = make_agent(idle_api)
    tree = work_tree(data_dir, agent)
    for value in ("a", "b", "b"):
        assert idle_api.patch(block_path(agent, "human"), {"value": value}).status == 200
    subjects = git(tree, "log", "--format=%s").splitlines()
    assert len(subjects) == 3
    assert subjects[-1] == "Initial agent creation"
    assert "system/human.md" in subjects[0]


def test_people_edit_the_file_and_the_next_get_shows_it(idle_api: Api, data_dir: Path) -> None:
    agent = make_agent(idle_api)
    file = work_tree(data_dir, agent) / "system" / "human.md"
    file.write_text(file.read_text().replace("Name: Bob", "Name: Eve"))
    assert idle_api.get(block_path(agent, "human")).json()["value"] == "Name: Eve"
    shown = idle_api.get(f"/v1/agents/{agent['id']}").json()
    assert "Name: Eve" in [b["value"] for b in shown["blocks"]]
    human = next(b for b in agent["blocks"] if b["label"] == "human")
    assert idle_api.get(f"/v1/blocks/{human['id']}").json()["value"] == "Name: Eve"
    assert idle_api.patch(block_path(agent, "persona"), {"value": "I."}).status == 200
    assert "Name: Eve" in git(work_tree(data_dir, agent), "show", "HEAD:system/human.md")


def test_a_real_git_commit_is_seen_by_the_next_get(idle_api: Api, data_dir: Path) -> None:
    agent = make_agent(idle_api)
    tree = work_tree(data_dir, agent)
    file = tree / "system" / "human.md"
    file.write_text(file.read_text().replace("Name: Bob", "Name: Eve"))
    (tree / "system" / "notes.md").write_text("no front matter")
    (tree / "system" / "subconscious.md").unlink()
    git(tree, "add", "-A")
    git(tree, "commit", "-m", "by hand")
    found = idle_api.get(f"/v1/agents/{agent['id']}/core-memory/blocks").json()
    values = {b["label"]: b["value"] for b in found}
    assert values == {"persona": "I am.", "human": "Name: Eve", "notes": "no front matter"}
    assert idle_api.patch(block_path(agent, "notes"), {"value": "changed"}).status == 200
    assert git(tree, "log", "--format=%s").splitlines()[1] == "by hand"
    assert git(tree, "status", "--porcelain") == ""


def test_a_shared_block_changes_in_every_agent(idle_api: Api, data_dir: Path) -> None:
    shared = idle_api.post("/v1/blocks", {"label": "team", "value": "one"}).json()
    agents = [make_agent(idle_api, name=n, block_ids=[shared["id"]]) for n in "ab"]
    idle_api.patch(block_path(agents[0], "team"), {"value": "two"})
    for agent in agents:
        assert idle_api.get(block_path(agent, "team")).json()["value"] == "two"
        assert (work_tree(data_dir, agent) / "system" / "team.md").read_text().endswith("two")
    listed = idle_api.get(f"/v1/blocks/{shared['id']}/agents").json()
    assert [a["id"] for a in listed] == [agents[1]["id"], agents[0]["id"]]
    detach = f"/v1/agents/{agents[0]['id']}/core-memory/blocks/detach/{shared['id']}"
    for _ in range(2):
        assert idle_api.patch(detach).status == 200
    assert idle_api.get(block_path(agents[0], "team")).status == 404
    assert not (work_tree(data_dir, agents[0]) / "system" / "team.md").exists()
    assert idle_api.get(f"/v1/blocks/{shared['id']}").json()["value"] == "two"


def test_attaching_twice_is_once_and_a_taken_label_is_a_conflict(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    free, taken = (
        idle_api.post("/v1/blocks", {"label": label, "value": "v"}).json()
        for label in ("project", "human")
    )
    attach = f"/v1/agents/{agent['id']}/core-memory/blocks/attach/"
    for _ in range(2):
        blocks = idle_api.patch(attach + free["id"]).json()["blocks"]
        assert [b["label"] for b in blocks].count("project") == 1
    refused = idle_api.patch(attach + taken["id"])
    assert refused.status == 409
    assert "'human'" in refused.json()["detail"]


def test_deleting_a_block_takes_it_from_its_agents(idle_api: Api, data_dir: Path) -> None:
    agent = make_agent(idle_api)
    human = next(b for b in agent["blocks"] if b["label"] == "human")
    assert idle_api.delete(f"/v1/blocks/{human['id']}").status == 200
    assert idle_api.delete(f"/v1/blocks/{human['id']}").status == 404
    assert idle_api.get(block_path(agent, "human")).status == 404
    assert not (work_tree(data_dir, agent) / "system" / "human.md").exists()


def test_labels_with_and_without_the_folder_name_the_same_block(idle_api: Api) -> None:
    agent = make_agent(idle_api, memory_blocks=[{"label": "a/b", "value": "deep"}])
    for label in ("a/b", "a%2Fb", "system/a/b", "a/b/"):
        assert idle_api.get(block_path(agent, label)).json()["value"] == "deep", label


def test_the_lists_of_blocks_filter_order_and_page(idle_api: Api) -> None:
    made = [
        idle_api.post("/v1/blocks", {"label": f"l{n % 2}", "value": f"v{n}", "description": "d"})
        for n in range(5)
    ]
    ids = [answer.json()["id"] for answer in made]
    assert [b["id"] for b in idle_api.get("/v1/blocks").json()] == ids
    assert [b["id"] for b in idle_api.get("/v1/blocks?order=desc&limit=2").json()] == ids[:2:-1]
    assert [b["id"] for b in idle_api.get("/v1/blocks?label=l1").json()] == [ids[1], ids[3]]
    assert [b["id"] for b in idle_api.get("/v1/blocks?value_search=V2").json()] == [ids[2]]
    assert len(idle_api.get("/v1/blocks?label_search=l&description_search=D").json()) == 5
    assert idle_api.get("/v1/blocks/count").json() == 5
    Block.objects.all().update(created_at=datetime(2026, 1, 1, tzinfo=UTC))
    for query in ("", "?order=desc"):
        assert sorted(walk(idle_api, f"/v1/blocks{query}")) == sorted(ids)
    agent = make_agent(idle_api)
    path = f"/v1/agents/{agent['id']}/core-memory/blocks"
    assert sorted(walk(idle_api, path)) == sorted(b["id"] for b in agent["blocks"])
    assert len(walk(idle_api, f"{path}?order=asc", limit=1)) == 3


def test_two_conversations_see_a_changed_block_on_their_next_turn(api: Api, provider: Any) -> None:
    agent = make_agent(api)
    made = [api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json() for _ in range(2)]
    paths = [f"/v1/conversations/{c['id']}/messages" for c in made]
    for path in paths:
        assert api.post(path, {"input": "Hello", "streaming": False}).status == 200
    api.patch(block_path(agent, "human"), {"value": "Name: Eve"})
    for path in paths:
        assert api.post(path, {"input": "Who am I?", "streaming": False}).status == 200
    prompts = [str(request.messages[0].content) for request in provider.requests]
    assert ["Name: Eve" in prompt for prompt in prompts] == [False, False, True, True]
    assert ["Name: Bob" in prompt for prompt in prompts] == [True, True, False, False]


def test_filters_of_the_list_and_of_the_count(idle_api: Api) -> None:
    agents = [make_agent(idle_api) for _ in range(2)]

    def create(label: str, **fields: Any) -> str:
        made = idle_api.post("/v1/blocks", {"label": label, "value": "x", **fields}).json()
        return str(made["id"])

    free = create("free", tags=["red", "größer"])
    one = create("one", tags=["red"], is_template=True, template_name="T")
    two = create("two", project_id="p1")
    idle_api.patch(f"/v1/agents/{agents[0]['id']}/core-memory/blocks/attach/{one}")
    for agent in agents:
        idle_api.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/attach/{two}")
    mine = {free, one, two}
    for query, expected in {
        "connected_to_agents_count_eq=0": {free},
        "connected_to_agents_count_eq=0&connected_to_agents_count_eq=2": {free, two},
        "connected_to_agents_count_gt=1": {two},
        "connected_to_agents_count_lt=2": {free, one},
        "tags=red": {free, one},
        "tags=red&tags=größer&match_all_tags=true": {free},
        "templates_only=true": {one},
        "name=T": {one},
        "project_id=p1": {two},
        "label=free": {free},
    }.items():
        found = {b["id"] for b in idle_api.get(f"/v1/blocks?{query}&limit=1000").json()}
        assert found & mine == expected, query
        assert idle_api.get(f"/v1/blocks/count?{query}").json() == len(found), query
    assert idle_api.get("/v1/blocks?connected_to_agents_count_gt=9999999999999").status == 422
