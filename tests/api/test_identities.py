"""Identities, groups and tags: all routes, duplicates, attachments, and that lists cost the same for any length."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents import group_selectors
from agents.actor import ALL_SCOPES, Actor, first_user
from agents.models import Identity
from conversations.wire.groups import group_states, identity_states
from tests.api.paging import walk
from tests.conftest import Api, make_agent

BODY = {"identifier_key": "u-1", "name": "Chad", "identity_type": "user"}


def create(api: Api, **fields: Any) -> dict[str, Any]:
    answer = api.post("/v1/identities/", {**BODY, **fields})
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def test_create_read_change_delete(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    properties = [{"key": "age", "value": 30, "type": "number"}]
    made = create(idle_api, agent_ids=[agent["id"]], properties=properties)
    assert list(made) == [
        "id",
        "identifier_key",
        "name",
        "identity_type",
        "project_id",
        "agent_ids",
        "block_ids",
        "organization_id",
        "properties",
    ]
    assert (made["agent_ids"], made["properties"]) == ([agent["id"]], properties)
    path = f"/v1/identities/{made['id']}"
    assert idle_api.get(path).json() == made
    changed = idle_api.patch(path, {"name": "Max", "agent_ids": []}).json()
    assert (changed["name"], changed["agent_ids"], changed["properties"]) == ("Max", [], properties)
    more = [{"key": "city", "value": "Ulm", "type": "string"}, {**properties[0], "value": 31}]
    assert idle_api.request("PUT", f"{path}/properties", more).json() is None
    found = {p["key"]: p["value"] for p in idle_api.get(path).json()["properties"]}
    assert found == {"age": 31, "city": "Ulm"}
    assert idle_api.get("/v1/identities/count").json() == 1
    assert idle_api.delete(path).json() is None
    assert idle_api.get(path).status == 404
    assert idle_api.get(f"/v1/agents/{agent['id']}").status == 200


def test_a_key_is_taken_once_in_a_project(idle_api: Api) -> None:
    create(idle_api)
    again = idle_api.post("/v1/identities/", BODY)
    assert again.status == 409
    assert again.json()["detail"].startswith("A unique constraint was violated for Identity.")
    create(idle_api, project_id="p")
    other = create(idle_api, identifier_key="u-2")
    taken = idle_api.patch(f"/v1/identities/{other['id']}", {"identifier_key": "u-1"})
    assert taken.status == 409
    upserted = idle_api.request("PUT", "/v1/identities/", {**BODY, "name": "New"}).json()
    assert upserted["name"] == "New"
    fresh = idle_api.request("PUT", "/v1/identities/", {**BODY, "identifier_key": "u-3"})
    assert fresh.status == 200
    assert Identity.objects.count() == 4


def test_attached_to_agents_and_blocks(idle_api: Api) -> None:
    agent, other = make_agent(idle_api), make_agent(idle_api)
    made = create(idle_api)
    block = agent["blocks"][0]["id"]
    for _ in range(2):
        path = f"/v1/agents/{agent['id']}/identities/attach/{made['id']}"
        assert idle_api.patch(path).json() is None
        attached = idle_api.patch(f"/v1/blocks/{block}/identities/attach/{made['id']}").json()
        assert attached["id"] == block
    found = idle_api.get(f"/v1/identities/{made['id']}").json()
    assert (found["agent_ids"], found["block_ids"]) == ([agent["id"]], [block])
    state = idle_api.get(f"/v1/agents/{agent['id']}?include=agent.identities").json()
    assert state["identity_ids"] == [made["id"]]
    assert state["identities"] == [found]
    of_it = idle_api.get(f"/v1/identities/{made['id']}/agents").json()
    assert [a["id"] for a in of_it] == [agent["id"]]
    assert [b["id"] for b in idle_api.get(f"/v1/identities/{made['id']}/blocks").json()] == [block]
    for query in (f"identity_id={made['id']}", "identifier_keys=u-1&identifier_keys=x"):
        assert [a["id"] for a in idle_api.get(f"/v1/agents?{query}").json()] == [agent["id"]]
        assert [b["id"] for b in idle_api.get(f"/v1/blocks?{query}").json()] == [block]
    assert idle_api.get("/v1/agents?identity_id=nonsense").status == 422
    idle_api.patch(f"/v1/agents/{agent['id']}/identities/detach/{made['id']}")
    idle_api.patch(f"/v1/blocks/{block}/identities/detach/{made['id']}")
    found = idle_api.get(f"/v1/identities/{made['id']}").json()
    assert (found["agent_ids"], found["block_ids"]) == ([], [])
    idle_api.patch(f"/v1/agents/{other['id']}", {"identity_ids": [made["id"]]})
    third = make_agent(idle_api, identity_ids=[made["id"]])
    found = idle_api.get(f"/v1/identities/{made['id']}").json()
    assert set(found["agent_ids"]) == {other["id"], third["id"]}
    unknown = {"identity_ids": [f"identity-{uuid.uuid4()}"]}
    assert idle_api.patch(f"/v1/agents/{other['id']}", unknown).status == 404
    assert idle_api.post("/v1/agents", {"model": "fake/fake-model", **unknown}).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {**BODY, "identity_type": "cat"},
        {**BODY, "properties": [{"key": "k"}]},
        {**BODY, "agent_ids": "x"},
    ],
)
def test_a_wrong_body_is_422(idle_api: Api, body: dict[str, Any]) -> None:
    assert idle_api.post("/v1/identities", body).status == 422


def test_unknown_agents_and_malformed_ids(idle_api: Api) -> None:
    missing = {**BODY, "agent_ids": [f"agent-{uuid.uuid4()}"]}
    assert idle_api.post("/v1/identities", missing).status == 404
    assert idle_api.post("/v1/identities", {**BODY, "block_ids": ["x"]}).status == 400
    assert idle_api.get("/v1/identities/identity-x").status == 422
    made = create(idle_api)
    wrong = idle_api.request("PUT", f"/v1/identities/{made['id']}/properties", {"key": "k"})
    assert wrong.status == 422


def test_lists_page_and_cost_the_same_for_any_length(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    made = [
        create(idle_api, identifier_key=f"k{n}", agent_ids=[agent["id"]])["id"] for n in range(5)
    ]
    assert walk(idle_api, "/v1/identities") == made[::-1]
    assert walk(idle_api, "/v1/identities?order=asc") == made
    assert len(idle_api.get("/v1/identities?name=cha&identity_type=user").json()) == 5
    assert len(idle_api.get("/v1/identities?identifier_key=k1").json()) == 1
    groups = [
        idle_api.post("/v1/groups", {"agent_ids": [agent["id"]], "description": "d"}).json()["id"]
        for _ in range(4)
    ]
    assert walk(idle_api, "/v1/groups") == groups
    assert walk(idle_api, f"/v1/agents/{agent['id']}/groups") == groups[::-1]
    actor = Actor(first_user(), ALL_SCOPES)
    for read, states in (
        (group_selectors.list_identities, identity_states),
        (group_selectors.list_groups, group_states),
    ):
        with CaptureQueriesContext(connection) as queries:
            states(read(actor, {}, ascending=True, limit=50))  # type: ignore[operator]
        assert len(queries) == 3


def test_groups(idle_api: Api) -> None:
    first, second = make_agent(idle_api), make_agent(idle_api)
    block = idle_api.post("/v1/blocks", {"label": "shared", "value": "x"}).json()["id"]
    body = {
        "agent_ids": [second["id"]],
        "description": "Sleeps",
        "manager_config": {
            "manager_type": "sleeptime",
            "manager_agent_id": first["id"],
            "sleeptime_agent_frequency": 5,
        },
        "shared_block_ids": [block],
    }
    made = idle_api.post("/v1/groups/", body)
    assert made.status == 200, made.body
    group = made.json()
    assert group["manager_type"] == "sleeptime"
    assert group["manager_agent_id"] == first["id"]
    assert (group["agent_ids"], group["shared_block_ids"]) == ([second["id"]], [block])
    state = idle_api.get(f"/v1/agents/{first['id']}?include=agent.managed_group").json()
    assert state["managed_group"] == state["multi_agent_group"] == group
    assert idle_api.get(f"/v1/agents/{second['id']}").json()["managed_group"] is None
    path = f"/v1/groups/{group['id']}"
    for _ in range(2):
        assert idle_api.patch(f"{path}/blocks/detach/{block}").json() is None
    assert idle_api.get(path).json()["shared_block_ids"] == []
    idle_api.patch(f"{path}/blocks/attach/{block}")
    changed = idle_api.patch(path, {"description": "D", "agent_ids": [second["id"], first["id"]]})
    assert changed.json()["agent_ids"] == [second["id"], first["id"]]
    assert changed.json()["shared_block_ids"] == [block]
    assert idle_api.get("/v1/groups/count").json() == 1
    assert idle_api.get("/v1/groups?manager_type=dynamic").json() == []
    unmanaged = {**body, "manager_config": {"manager_type": "supervisor"}}
    assert idle_api.post("/v1/groups", unmanaged).status == 422
    assert (
        idle_api.post("/v1/groups", {**body, "agent_ids": [f"agent-{uuid.uuid4()}"]}).status == 404
    )
    idle_api.delete(f"/v1/agents/{first['id']}")
    assert idle_api.get(path).json()["manager_agent_id"] is None
    assert idle_api.delete(path).json() is None
    assert idle_api.get(path).status == 404


def test_tags(idle_api: Api) -> None:
    make_agent(idle_api, tags=["b", "a", "Origin:x"])
    make_agent(idle_api, tags=["b", "c"])
    assert sorted(idle_api.get("/v1/tags/").json()) == ["Origin:x", "a", "b", "c"]
    everything = idle_api.get("/v1/tags").json()
    seen: list[str] = []
    while page := idle_api.get(f"/v1/tags?limit=1{f'&after={seen[-1]}' if seen else ''}").json():
        seen += page
    assert seen == everything
    assert idle_api.get("/v1/tags?order=desc").json() == everything[::-1]
    assert idle_api.get(f"/v1/tags?before={everything[2]}&limit=1").json() == [everything[1]]
    assert idle_api.get("/v1/tags?query_text=orig").json() == ["Origin:x"]


def test_sleeptime_is_the_background_life(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    assert agent["enable_sleeptime"] is None
    path = f"/v1/agents/{agent['id']}"
    off = idle_api.patch(path, {"enable_sleeptime": False}).json()
    assert off["enable_sleeptime"] is False
    assert off["_souveraine"]["n1_enabled"] is off["_souveraine"]["reflection_enabled"] is False
    half = idle_api.patch(path, {"_souveraine": {"reflection_enabled": True}}).json()
    assert half["enable_sleeptime"] is True
    on = make_agent(idle_api, enable_sleeptime=True, _souveraine={"n1_enabled": False})
    assert on["enable_sleeptime"] is True
    assert on["_souveraine"]["n1_enabled"] is False
