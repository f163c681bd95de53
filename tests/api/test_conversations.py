"""Conversations: create, list, retrieve, update, delete, and the runs they leave."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from conversations.models import Conversation, Run
from tests.api.paging import walk
from tests.conftest import Api, make_agent


def create(api: Api, agent: dict[str, Any], **body: Any) -> dict[str, Any]:
    answer = api.post(f"/v1/conversations?agent_id={agent['id']}", body)
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def test_the_agent_is_named_in_the_query_or_in_the_body(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    in_query = create(idle_api, agent)
    in_body = idle_api.post("/v1/conversations/", {"agent_id": agent["id"]}).json()
    without_body = idle_api.post(f"/v1/conversations/?agent_id={agent['id']}").json()
    for made in (in_query, in_body, without_body):
        assert made["agent_id"] == agent["id"]
        assert made["id"].startswith("conv-")
        assert made["created_at"].endswith("Z")
        assert len(made["in_context_message_ids"]) in (0, 1)
        found = idle_api.get(f"/v1/conversations/{made['id']}").json()
        assert found | {"in_context_message_ids": []} == made | {"in_context_message_ids": []}


def test_fields_round_trip_and_null_clears(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    fields = {"summary": "S", "model": "fake/fake-model", "model_settings": {"temperature": 0.1}}
    made = create(idle_api, agent, **fields)
    assert made.items() >= fields.items()
    path = f"/v1/conversations/{made['id']}"
    changed = idle_api.patch(path, {"summary": "T"}).json()
    assert changed.items() >= {**fields, "summary": "T"}.items()
    assert changed["updated_at"] > made["updated_at"]
    for name in fields:
        assert idle_api.patch(path, {name: None}).json()[name] is None
    assert idle_api.get(path).json()["summary"] is None


def test_the_files_of_a_conversation_follow_it(api: Api, data_dir: Path) -> None:
    agent = make_agent(api)
    made = create(api, agent, summary="S")
    folder = data_dir / "agents" / agent["id"].removeprefix("agent-") / "conversations"
    api.patch(f"/v1/conversations/{made['id']}", {"summary": "T"})
    document = json.loads((folder / f"{made['id']}.json").read_text())
    assert (document["id"], document["summary"]) == (made["id"], "T")


def test_a_deleted_conversation_is_gone_and_the_agent_stays(api: Api) -> None:
    agent = make_agent(api)
    made = create(api, agent)
    path = f"/v1/conversations/{made['id']}"
    assert api.post(f"{path}/messages", {"input": "x", "streaming": False}).status == 200
    assert api.delete(path).status == 200
    for method, target in (
        ("GET", path),
        ("PATCH", path),
        ("DELETE", path),
        ("GET", f"{path}/messages"),
    ):
        assert api.request(method, target, {}).status == 404, (method, target)
    assert api.post(f"{path}/messages", {"input": "x"}).status == 404
    assert api.get("/v1/conversations").json() == []
    assert api.get(f"/v1/agents/{agent['id']}").status == 200
    listed = api.get(f"/v1/agents/{agent['id']}/messages").json()
    assert [m["message_type"] for m in listed] == ["system_message"]


def test_lists_are_per_agent_newest_first_without_the_default_one(idle_api: Api) -> None:
    one, two = make_agent(idle_api), make_agent(idle_api, name="two")
    made = [create(idle_api, one, summary=f"about {n}") for n in range(3)]
    other = create(idle_api, two)
    path = f"/v1/conversations?agent_id={one['id']}"
    found = [c["id"] for c in idle_api.get(path).json()]
    assert found == [c["id"] for c in reversed(made)]
    assert [c["id"] for c in idle_api.get("/v1/conversations?limit=1").json()] == [other["id"]]
    found = [c["id"] for c in idle_api.get(f"{path}&order=asc&limit=2").json()]
    assert found == [c["id"] for c in made[:2]]
    (found_one,) = idle_api.get(f"{path}&summary_search=ABOUT%201").json()
    assert found_one["id"] == made[1]["id"]
    assert Conversation.objects.filter(is_default=True).count() == 2


def test_paging_shows_each_conversation_once_in_every_order(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    ids = [create(idle_api, agent)["id"] for _ in range(5)]
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = Conversation.objects.filter(is_default=False)
    rows.update(created_at=moment)
    rows.filter(pk=ids[3].removeprefix("conv-")).update(last_message_at=moment)
    rows.filter(pk=ids[1].removeprefix("conv-")).update(
        last_message_at=moment + timedelta(seconds=1)
    )
    for order_by in ("created_at", "last_message_at", "last_run_completion"):
        for order in ("asc", "desc"):
            path = f"/v1/conversations?order_by={order_by}&order={order}"
            for by in ("after", "before"):
                found = walk(idle_api, path, by=by)
                if by == "after":
                    assert sorted(found) == sorted(ids), path
    recent = walk(idle_api, "/v1/conversations?order_by=last_message_at")
    assert recent[:2] == [ids[1], ids[3]]

    def add(number: int) -> None:
        if number < 2:
            create(idle_api, agent)

    seen = walk(idle_api, "/v1/conversations", between=add)
    assert len(seen) == len(set(seen))
    assert set(seen) >= set(ids)


def test_before_gives_the_rows_nearest_to_the_cursor(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    ids = [create(idle_api, agent)["id"] for _ in range(5)]
    path = f"/v1/conversations?limit=2&before={ids[1]}"
    assert [c["id"] for c in idle_api.get(path).json()] == [ids[3], ids[2]]


def test_runs_are_listed_filtered_and_paged(api: Api) -> None:
    agent = make_agent(api)
    made = create(api, agent)
    path = f"/v1/conversations/{made['id']}/messages"
    for number in range(4):
        body = {"input": f"m{number}", "streaming": False}
        assert api.post(path, body).status == 200
    assert api.post(f"/v1/agents/{agent['id']}/messages", {"input": "x"}).status == 200
    runs = api.get("/v1/runs").json()
    assert len(runs) == 5
    assert [r["created_at"] for r in runs] == sorted((r["created_at"] for r in runs), reverse=True)
    of_conversation = f"/v1/runs?conversation_id={made['id']}"
    assert len(api.get(of_conversation).json()) == 4
    assert len(api.get(f"/v1/runs?agent_ids={agent['id']}&limit=2").json()) == 2
    assert api.get("/v1/runs?active=true").json() == []
    assert len(api.get("/v1/runs?statuses=completed").json()) == 5
    assert api.get("/v1/runs?stop_reason=error").json() == []
    Run.objects.all().update(created_at=datetime(2026, 1, 1, tzinfo=UTC))
    for query in ("", "?order=asc", "?ascending=true"):
        assert sorted(walk(api, f"/v1/runs{query}")) == sorted(r["id"] for r in runs)
    steps = api.get(f"/v1/runs/{runs[0]['id']}/steps").json()
    assert [s["run_id"] for s in steps] == [runs[0]["id"]]
