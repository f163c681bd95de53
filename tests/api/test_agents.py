"""Agents: create, change, list, delete; their files; what happens when something fails midway."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.models import Agent, AgentBlock, Block
from agents.providers.registry import override_providers
from agents.services import memory
from conversations import composition
from conversations.models import Conversation
from memfs import MemoryRepository
from souveraine.errors import Unavailable
from souveraine.testing.fake_provider import FakeProvider
from tests.api.paging import walk
from tests.conftest import Api, make_agent

SDK = {"x-stainless-package-version": "1.12.1"}
SEED = {
    "id": "agent-e2b683bf-5b3e-4e0c-ac62-2bbb47ea8351",
    "name": "Ani",
    "description": "Primary consciousness agent",
    "created_at": "2024-01-15T10:30:00Z",
    "updated_at": "2024-01-15T10:30:00Z",
    "llm_config": {
        "model": "fireworks/accounts/fireworks/routers/kimi-k2p5-turbo",
        "context_window": 128000,
    },
    "memory": {"git_enabled": True, "auto_commit": True, "context_window": 128000},
    "memory_blocks": [
        {"label": "persona", "value": "..."},
        {"label": "human", "value": "..."},
        {"label": "subconscious", "value": "..."},
    ],
    "tools": ["read_file", "write_file", "edit_file", "bash"],
    "tags": ["primary", "consciousness"],
    "_souveraine": {
        "n1_enabled": True,
        "reflection_enabled": True,
        "archivist_threshold": 0.7,
        "sensorium_bandwidth": "high",
    },
}
SEED_MODEL = "fireworks/accounts/fireworks/routers/kimi-k2p5-turbo"


def folder_of(data_dir: Path, agent: dict[str, Any]) -> Path:
    return data_dir / "agents" / agent["id"].removeprefix("agent-")


def document_of(data_dir: Path, agent: dict[str, Any]) -> dict[str, Any]:
    text = (folder_of(data_dir, agent) / "agent.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "safe.directory=*", "-C", str(folder / "memory.git"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def nothing_is_left(data_dir: Path) -> bool:
    folders = list((data_dir / "agents").iterdir()) if (data_dir / "agents").exists() else []
    rows = [m.objects.count() for m in (Agent, AgentBlock, Block, Conversation)]
    return not folders and not any(rows)


@pytest.fixture
def bifrost(idle_api: Api) -> Iterator[FakeProvider]:
    fake = FakeProvider("bifrost", models=(SEED_MODEL,), context_window=200_000)
    with override_providers({"bifrost": fake}):
        yield fake


def test_the_seeds_agent_json_is_accepted_as_it_stands(
    idle_api: Api, bifrost: FakeProvider, data_dir: Path
) -> None:
    answer = idle_api.post("/v1/agents", SEED)
    assert answer.status == 200, answer.body
    made = answer.json()
    assert made["id"] == SEED["id"]
    assert (made["name"], made["description"]) == ("Ani", "Primary consciousness agent")
    assert made["model"].endswith(SEED_MODEL)
    assert made["llm_config"]["context_window"] == 128000
    assert [t["name"] for t in made["tools"] if t["name"] in SEED["tools"]] == SEED["tools"]
    assert made["tags"] == SEED["tags"]
    assert made["_souveraine"].items() >= SEED["_souveraine"].items()  # type: ignore[attr-defined]
    assert [b["label"] for b in made["memory_blocks"]] == ["persona", "human", "subconscious"]
    document = document_of(data_dir, made)
    for key in ("id", "name", "description", "memory", "tags"):
        assert document[key] == SEED[key], key
    assert document["_souveraine"].items() >= SEED["_souveraine"].items()  # type: ignore[attr-defined]
    assert document["llm_config"]["context_window"] == 128000
    assert {b["label"]: b["value"] for b in document["memory_blocks"]} == {
        "persona": "...",
        "human": "...",
        "subconscious": "...",
    }


def test_the_seeds_model_without_bifrost_is_a_clear_refusal(idle_api: Api, data_dir: Path) -> None:
    answer = idle_api.post("/v1/agents", SEED)
    assert answer.status == 400
    assert "fireworks" in answer.json()["detail"]
    assert "BIFROST_BASE_URL" in answer.json()["detail"]
    assert nothing_is_left(data_dir)


def test_the_same_id_again_is_a_conflict_and_harms_nothing(
    idle_api: Api, bifrost: FakeProvider, data_dir: Path
) -> None:
    made = idle_api.post("/v1/agents", SEED).json()
    again = idle_api.post("/v1/agents", SEED)
    assert again.status == 409
    assert made["id"] in again.json()["detail"]
    assert idle_api.get(f"/v1/agents/{made['id']}").json()["name"] == "Ani"
    assert document_of(data_dir, made)["name"] == "Ani"


FIELDS: dict[str, Any] = {
    "description": "d",
    "system": "You are.",
    "model_settings": {"temperature": 0.2, "provider_type": "openai"},
    "context_window_limit": 9000,
    "parallel_tool_calls": False,
    "compaction_settings": {"model": "letta/auto"},
    "response_format": {"type": "text"},
    "tool_rules": [{"type": "run_first", "tool_name": "memory_insert"}],
    "tags": ["b", "a"],
    "metadata": {"k": [1, None, {"ä": "ü"}]},
    "timezone": "Europe/Berlin",
    "max_files_open": 3,
    "per_file_view_window_char_limit": 777,
    "message_buffer_autoclear": True,
    "enable_sleeptime": False,
    "project_id": "p",
    "template_id": "t",
    "base_template_id": "bt",
    "embedding": "openai/text-embedding-3-small",
    "memory": {"git_enabled": True, "auto_commit": False, "context_window": 9000},
    "_souveraine": {
        "n1_enabled": False,
        "reflection_enabled": False,
        "archivist_enabled": False,
        "archivist_threshold": 0.5,
        "sensorium_bandwidth": "low",
    },
}


def check_fields(got: dict[str, Any], given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name == "context_window_limit":
            assert got["llm_config"]["context_window"] == value
        elif name == "parallel_tool_calls":
            assert got["model_settings"][name] == value
        elif name in ("memory", "_souveraine", "model_settings"):
            assert got[name].items() >= value.items(), name
        else:
            assert got[name] == value, name


def test_every_field_round_trips_on_create_and_on_patch(idle_api: Api) -> None:
    created = make_agent(idle_api, **FIELDS)
    check_fields(created, FIELDS)
    check_fields(idle_api.get(f"/v1/agents/{created['id']}").json(), FIELDS)
    bare = make_agent(idle_api, name="bare")
    for name, value in FIELDS.items():
        answer = idle_api.patch(f"/v1/agents/{bare['id']}", {name: value})
        assert answer.status == 200, (name, answer.body)
        check_fields(answer.json(), {name: value})
    changed = idle_api.get(f"/v1/agents/{bare['id']}").json()
    check_fields(changed, FIELDS)
    assert changed["name"] == "bare"


def test_a_bare_create_has_the_seeds_defaults(idle_api: Api) -> None:
    made = idle_api.post("/v1/agents", {"name": "Ani"}).json()
    assert made["model"] == "fake/fake-model"
    assert made["memory"]["git_enabled"] is True
    assert made["memory"]["auto_commit"] is True
    assert made["_souveraine"]["n1_enabled"] is True
    assert made["_souveraine"]["reflection_enabled"] is True
    assert made["_souveraine"]["archivist_threshold"] == 0.7
    assert made["_souveraine"]["sensorium_bandwidth"] == "high"
    assert [b["label"] for b in made["blocks"]] == ["persona", "human", "subconscious"]
    assert [t["name"] for t in made["tools"]] == [
        "conversation_search",
        "memory_insert",
        "memory_replace",
    ]
    assert len(made["message_ids"]) == 1


def test_the_seeds_create_request_keys_round_trip(idle_api: Api) -> None:
    body = {
        "name": "Ani",
        "description": "d",
        "persona": "I am Ani.",
        "llm_config": {"model": "fake/fake-model", "context_window": 5000},
        "tools": ["read_file"],
        "tags": ["x"],
    }
    made = idle_api.post("/v1/agents", body).json()
    assert made["blocks"][0] | {"label": "persona", "value": "I am Ani."} == made["blocks"][0]
    assert made["llm_config"]["context_window"] == 5000
    assert "read_file" in [t["name"] for t in made["tools"]]
    wide = {"name": "x", "context_window": 6000}
    assert idle_api.post("/v1/agents", wide).json()["llm_config"]["context_window"] == 6000


def test_a_patch_changes_only_what_it_names_and_null_clears_the_description(
    idle_api: Api,
) -> None:
    made = make_agent(idle_api, description="d", tags=["a", "b"], metadata={"k": 1})
    path = f"/v1/agents/{made['id']}"
    renamed = idle_api.patch(path, {"name": "new"}).json()
    assert (renamed["name"], renamed["description"], renamed["tags"]) == ("new", "d", ["a", "b"])
    assert renamed["updated_at"] > made["updated_at"]
    assert renamed["created_at"] == made["created_at"]
    assert idle_api.patch(path, {"description": None}).json()["description"] is None
    assert idle_api.patch(path, {"tags": ["c", "a", "c"]}).json()["tags"] == ["c", "a"]
    assert idle_api.patch(path, {"tags": []}).json()["tags"] == []
    assert idle_api.patch(path, {}).json()["metadata"] == {"k": 1}


def test_patch_of_memory_blocks_changes_adds_and_keeps(idle_api: Api, data_dir: Path) -> None:
    made = make_agent(idle_api)
    blocks = [{"label": "human", "value": "Name: Eve"}, {"label": "new/place", "value": "n"}]
    changed = idle_api.patch(f"/v1/agents/{made['id']}", {"memory_blocks": blocks}).json()
    assert {b["label"]: b["value"] for b in changed["memory_blocks"]} == {
        "persona": "I am.",
        "human": "Name: Eve",
        "subconscious": "",
        "new/place": "n",
    }
    file = folder_of(data_dir, made) / "memory.git" / "system" / "new" / "place.md"
    assert file.read_text().endswith("n")


def test_tool_and_block_ids_replace_the_set(idle_api: Api) -> None:
    made = make_agent(idle_api, tools=["web_search"])
    wanted = [t["id"] for t in made["tools"] if t["name"] == "web_search"]
    free = idle_api.post("/v1/blocks", {"label": "project", "value": "P1"}).json()
    human = next(b for b in made["blocks"] if b["label"] == "human")
    changed = idle_api.patch(
        f"/v1/agents/{made['id']}",
        {"tool_ids": wanted, "block_ids": [free["id"], human["id"]]},
    ).json()
    assert [t["name"] for t in changed["tools"]] == ["web_search"]
    assert sorted(b["label"] for b in changed["blocks"]) == ["human", "project"]


def test_two_attached_blocks_with_one_label_make_no_half_agent(
    idle_api: Api, data_dir: Path
) -> None:
    one, two = (idle_api.post("/v1/blocks", {"label": "twin", "value": v}).json() for v in "ab")
    body = {"name": "x", "block_ids": [one["id"], two["id"]]}
    answer = idle_api.post("/v1/agents", body)
    assert answer.status == 409
    assert "'twin'" in answer.json()["detail"]
    assert Agent.objects.count() == 0
    assert Block.objects.count() == 2


def test_sdk_clients_get_only_the_relationships_they_name(idle_api: Api) -> None:
    made = make_agent(idle_api, tags=["t"], secrets={"A": "1"})
    path = f"/v1/agents/{made['id']}"

    def filled(query: str, headers: dict[str, str]) -> set[str]:
        found = idle_api.get(f"{path}{query}", headers=headers).json()
        listed = idle_api.get(f"/v1/agents{query}", headers=headers).json()[0]
        names = {n for n in ("blocks", "tools", "tags", "secrets") if found[n]}
        assert names == {n for n in ("blocks", "tools", "tags", "secrets") if listed[n]}
        assert bool(found["memory"]["blocks"]) == bool(found["blocks"])
        return names

    everything = {"blocks", "tools", "tags", "secrets"}
    assert filled("", {}) == everything
    assert filled("", {"user-agent": "curl/8.0"}) == everything
    assert filled("", SDK) == set()
    assert filled("", {"user-agent": "letta-client/1.0"}) == set()
    assert filled("?include=agent.tags&include=agent.tools", SDK) == {"tags", "tools"}
    assert filled("?include=agent.blocks", {}) == {"blocks"}
    assert filled("?include_relationships=secrets", {}) == {"secrets"}
    changed = idle_api.patch(path, {"name": "x"}, headers=SDK).json()
    assert changed["tools"]
    assert changed["tags"] == ["t"]


def test_filters_narrow_the_list_and_the_count(idle_api: Api) -> None:
    first = make_agent(idle_api, name="alpha one", tags=["x", "y"])
    second = make_agent(idle_api, name="alpha two", tags=["y"])
    third = make_agent(idle_api, name="50% beta", tags=[])
    hidden = make_agent(idle_api, name="hidden", hidden=True)
    cases = {
        "": [third, second, first],
        "order=asc": [first, second, third],
        "ascending=true": [first, second, third],
        "name=alpha%20one": [first],
        "name=alpha": [],
        "query_text=ALPHA": [second, first],
        "query_text=%25": [third],
        "tags=y": [second, first],
        "tags=x&tags=y": [second, first],
        "tags=x&tags=y&match_all_tags=true": [first],
        "tags=y&query_text=two&limit=1": [second],
        "tags=y&limit=1": [second],
        "tags=y&limit=1&offset=1": [first],
        f"after={second['id']}": [first],
        f"before={second['id']}": [third],
        f"order=asc&after={second['id']}": [third],
        "limit=0": [],
        "created_by_id=user-11111111-1111-4111-8111-111111111111": [],
        f"created_by_id={first['created_by_id']}": [third, second, first],
    }
    for query, wanted in cases.items():
        found = idle_api.get(f"/v1/agents?{query}").json()
        assert [a["id"] for a in found] == [a["id"] for a in wanted], query
    assert idle_api.get("/v1/agents/count").json() == 3
    assert idle_api.get("/v1/agents/count?tags=y").json() == 2
    assert idle_api.get(f"/v1/agents/{hidden['id']}").status == 200


def test_each_list_element_has_the_seeds_summary_keys(idle_api: Api) -> None:
    make_agent(idle_api)
    wanted = {"id", "name", "description", "created_at", "updated_at", "tags"}
    assert all(wanted <= set(row) for row in idle_api.get("/v1/agents", headers=SDK).json())


def test_paging_shows_each_agent_once_also_with_equal_times_and_while_some_are_added(
    idle_api: Api,
) -> None:
    made = [make_agent(idle_api, name=f"a{n}")["id"] for n in range(5)]
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    Agent.objects.all().update(created_at=moment, updated_at=moment)
    for query in ("", "?order=asc", "?order_by=updated_at", "?order_by=last_run_completion"):
        assert sorted(walk(idle_api, f"/v1/agents{query}")) == sorted(made), query

    def add(number: int) -> None:
        if number < 2:
            make_agent(idle_api, name=f"late{number}")

    seen = walk(idle_api, "/v1/agents", between=add)
    assert len(seen) == len(set(seen))
    assert set(seen) >= set(made)
    assert len(walk(idle_api, "/v1/agents?order=asc", limit=3)) == 7
    Agent.objects.filter(pk=made[2].removeprefix("agent-")).update(last_run_completion=moment)
    for query in ("order_by=last_run_completion", "order_by=last_run_completion&order=asc"):
        ordered = walk(idle_api, f"/v1/agents?{query}")
        assert ordered[0] == made[2], "agents that never ran come last"
        assert len(set(ordered)) == len(ordered) == 7


def test_both_id_forms_and_both_slash_forms_find_an_agent(idle_api: Api) -> None:
    made = make_agent(idle_api)
    bare = made["id"].removeprefix("agent-")
    for text in (made["id"], bare):
        for slash in ("", "/"):
            assert idle_api.get(f"/v1/agents/{text}{slash}").json()["id"] == made["id"]


def test_creation_makes_the_files_and_one_first_commit(idle_api: Api, data_dir: Path) -> None:
    made = make_agent(idle_api)
    folder = folder_of(data_dir, made)
    assert git(folder, "log", "--format=%s").splitlines() == ["Initial agent creation"]
    names = sorted(p.name for p in (folder / "memory.git" / "system").glob("*.md"))
    assert names == ["human.md", "persona.md", "subconscious.md"]
    assert (folder / "memory.git" / "system" / "human.md").read_text().endswith("Name: Bob")
    assert (folder / "conversations").is_dir()
    assert git(folder, "status", "--porcelain") == ""
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_agent_json_has_the_seeds_keys_and_follows_each_change(
    idle_api: Api, data_dir: Path
) -> None:
    made = make_agent(idle_api, tags=["t"])
    path = f"/v1/agents/{made['id']}"
    document = document_of(data_dir, made)
    assert set(SEED) <= set(document)
    assert set(SEED["memory"]) == set(document["memory"])  # type: ignore[call-overload]
    assert set(SEED["_souveraine"]) <= set(document["_souveraine"])  # type: ignore[call-overload]
    assert {"label", "value"} <= set(document["memory_blocks"][0])
    assert document["tools"] == ["conversation_search", "memory_insert", "memory_replace"]
    idle_api.patch(path, {"name": "new", "tags": ["u"]})
    after = document_of(data_dir, made)
    assert (after["name"], after["tags"]) == ("new", ["u"])
    assert after["updated_at"] > document["updated_at"]
    idle_api.patch(f"{path}/core-memory/blocks/human", {"value": "Name: Eve"})
    values = {b["label"]: b["value"] for b in document_of(data_dir, made)["memory_blocks"]}
    assert values["human"] == "Name: Eve"
    free = idle_api.post("/v1/blocks", {"label": "project", "value": "P1"}).json()
    idle_api.patch(f"{path}/core-memory/blocks/attach/{free['id']}")
    assert "project" in [b["label"] for b in document_of(data_dir, made)["memory_blocks"]]
    idle_api.patch(f"{path}/core-memory/blocks/detach/{free['id']}")
    assert "project" not in [b["label"] for b in document_of(data_dir, made)["memory_blocks"]]
    assert document_of(data_dir, made)["created_at"] == document["created_at"]


def test_lists_read_no_agent_file(idle_api: Api, data_dir: Path) -> None:
    made = make_agent(idle_api)
    shutil.rmtree(folder_of(data_dir, made))
    (row,) = idle_api.get("/v1/agents").json()
    assert (row["id"], len(row["blocks"])) == (made["id"], 3)
    assert idle_api.get("/v1/agents/count").json() == 1
    assert len(idle_api.get("/v1/blocks").json()) == 3


def test_delete_removes_everything_of_the_agent_but_shared_and_free_blocks(
    api: Api, data_dir: Path
) -> None:
    shared = api.post("/v1/blocks", {"label": "shared", "value": "s"}).json()
    free = api.post("/v1/blocks", {"label": "free", "value": "f"}).json()
    one = make_agent(api, block_ids=[shared["id"]])
    two = make_agent(api, name="two", block_ids=[shared["id"]])
    assert api.post(f"/v1/agents/{one['id']}/messages", {"input": "Hello"}).status == 200
    answer = api.delete(f"/v1/agents/{one['id']}")
    assert answer.json() == {"message": f"Agent id={one['id']} successfully deleted"}
    left_files = sorted(str(p) for p in folder_of(data_dir, one).rglob("*"))
    assert not folder_of(data_dir, one).exists(), left_files
    assert folder_of(data_dir, two).exists()
    left = {b["id"] for b in api.get("/v1/blocks").json()}
    assert left == {shared["id"], free["id"]} | {b["id"] for b in two["blocks"]}
    assert Conversation.objects.filter(agent=one["id"].removeprefix("agent-")).count() == 0
    for method, path in (("GET", ""), ("DELETE", ""), ("PATCH", ""), ("GET", "/messages")):
        answer = api.request(method, f"/v1/agents/{one['id']}{path}", {})
        assert answer.status == 404, (method, path)
    assert [p.name for p in (data_dir / "agents").iterdir()] == [folder_of(data_dir, two).name]


def test_a_failure_midway_leaves_no_half_agent(
    idle_api: Api, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise Unavailable("The disk is full.")

    body = {"name": "x", "model": "fake/fake-model"}
    with memory.open_repository.override(fail):
        assert idle_api.post("/v1/agents", body).status == 503
    assert nothing_is_left(data_dir)
    places = (
        (MemoryRepository, "create"),
        ("agents.services.creation.write_agent_json",),
        ("agents.services.creation._save_relations",),
    )
    for place in places:
        with monkeypatch.context() as patched:
            patched.setattr(*place, fail)
            assert idle_api.post("/v1/agents", body).status == 503, place
        assert nothing_is_left(data_dir), place
    assert idle_api.post("/v1/agents", body).status == 200


class StubInventory:
    """Holds one agent in memory."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.calls: list[str] = []

    def list_agents(self, *args: Any, **options: Any) -> list[Agent]:
        self.calls.append("list")
        return [self.agent]

    def get_agent(self, *args: Any) -> Agent:
        self.calls.append("get")
        return self.agent


class StubModels:
    def list_models(self, actor: Any) -> list[Any]:
        return FakeProvider("stub", models=("m1",)).list_models()


class StubSessions:
    def __init__(self, agent: Agent) -> None:
        self.conversation = Conversation(agent=agent, summary="from a stub")

    def get_conversation(self, *args: Any) -> Conversation:
        return self.conversation


class StubRepository:
    """A memory of one file."""

    def __init__(self, root: Path, mode: Any) -> None:
        self.root = root

    def head(self) -> str:
        return "0" * 40

    def import_worktree_changes(self) -> None:
        """Nothing changes by itself here."""

    def list(self, prefix: str = "") -> list[Any]:
        return [type("Entry", (), {"path": "system/stub.md"})()]

    def read(self, path: str) -> str:
        return "from a stub"


def test_each_part_of_the_server_can_be_replaced_by_a_stub_without_patching(
    idle_api: Api,
) -> None:
    made = make_agent(idle_api)
    row = Agent.objects.get(pk=made["id"].removeprefix("agent-"))
    row.name = "from a stub"
    inventory = StubInventory(row)
    with composition.override(inventory=inventory):
        assert idle_api.get("/v1/agents").json()[0]["name"] == "from a stub"
        assert idle_api.get(f"/v1/agents/{made['id']}").json()["name"] == "from a stub"
    assert inventory.calls == ["list", "get"]
    with composition.override(models=StubModels()):
        assert [m["handle"] for m in idle_api.get("/v1/models").json()] == ["stub/m1"]
    with composition.override(sessions=StubSessions(row)):
        answer = idle_api.get(f"/v1/conversations/conv-{row.pk}")
        assert answer.json()["summary"] == "from a stub"
    with memory.open_repository.override(StubRepository):  # type: ignore[arg-type]
        blocks = idle_api.get(f"/v1/agents/{made['id']}/core-memory/blocks").json()
    assert [(b["label"], b["value"]) for b in blocks] == [("stub", "from a stub")]
    assert idle_api.get(f"/v1/agents/{made['id']}").json()["name"] == "golden-agent"


def test_an_agent_begins_with_what_was_said_before(api: Api, provider: Any) -> None:
    said = [
        {"role": "user", "content": "I am Ada."},
        {"role": "assistant", "content": "Hello Ada."},
    ]
    agent = make_agent(api, initial_message_sequence=said)
    assert provider.requests == [], "no turn was made of it"
    listed = api.get(f"/v1/agents/{agent['id']}/messages").json()
    assert [m["message_type"] for m in listed] == [
        "system_message",
        "user_message",
        "assistant_message",
    ]
    assert len(agent["message_ids"]) == 3
    api.post(f"/v1/agents/{agent['id']}/messages", {"input": "And you?"})
    prompt = [(m.role, m.content) for m in provider.requests[-1].messages[-3:]]
    assert [role for role, _ in prompt] == ["user", "assistant", "user"]
    before = api.get("/v1/agents/count").json()
    refused = api.post(
        "/v1/agents", {"name": "x", "model": "fake/fake-model", "initial_message_sequence": [{}]}
    )
    assert (refused.status, api.get("/v1/agents/count").json()) == (422, before)


def test_sort_by_is_an_old_name_of_order_by(api: Api) -> None:
    agents = [make_agent(api) for _ in range(3)]
    api.patch(f"/v1/agents/{agents[0]['id']}", {"name": "touched"})
    found = api.get("/v1/agents?sort_by=updated_at").json()
    assert found[0]["id"] == agents[0]["id"]


def test_model_settings_and_the_legacy_form_tell_the_same(idle_api: Api) -> None:
    agent = make_agent(idle_api)["id"]

    def changed(**body: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        state = idle_api.patch(f"/v1/agents/{agent}", body).json()
        return state["model_settings"], state["llm_config"]

    wanted = {"type": "json_object"}
    settings, legacy = changed(
        model_settings={"temperature": 0.3, "max_output_tokens": 900, "response_format": wanted}
    )
    assert (settings["temperature"], legacy["temperature"]) == (0.3, 0.3)
    assert (settings["max_output_tokens"], legacy["max_tokens"]) == (900, 900)
    assert settings["response_format"] == legacy["response_format"] == wanted
    settings, legacy = changed(
        llm_config={
            "temperature": 0.5,
            "max_tokens": 700,
            "reasoning_effort": "high",
            "strict": True,
        }
    )
    assert (settings["temperature"], legacy["temperature"]) == (0.5, 0.5)
    assert (settings["max_output_tokens"], legacy["max_tokens"]) == (700, 700)
    assert settings["reasoning"] == {"reasoning_effort": "high"}
    assert (settings["strict"], legacy["strict"]) == (True, True)
    assert settings["response_format"] == wanted, "what is not named stays"
    settings, legacy = changed(parallel_tool_calls=True)
    assert (settings["parallel_tool_calls"], legacy["parallel_tool_calls"]) == (True, True)
    settings, legacy = changed(llm_config={"temperature": 0.1}, model_settings={"temperature": 0.2})
    assert (settings["temperature"], legacy["temperature"]) == (0.2, 0.2)
    refused = idle_api.patch(f"/v1/agents/{agent}", {"llm_config": {"temperature": "hot"}})
    assert refused.status == 422


def test_the_hosted_services_choice_is_the_default_model(idle_api: Api) -> None:
    made = idle_api.post("/v1/agents", {"name": "auto", "model": "letta/auto"})
    unnamed = idle_api.post("/v1/agents", {"name": "none"})
    assert (made.status, unnamed.status) == (200, 200)
    assert made.json()["model"] == unnamed.json()["model"] != "letta/auto"
    assert idle_api.post("/v1/agents", {"name": "x", "model": "letta/other"}).status == 400
