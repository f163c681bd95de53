"""The calls that letta-mobile makes over plain HTTP, in its order and spelling: no slashes, `offset`, `slim`.

It reads leniently, but takes anything but the texts below for an error.
"""

from __future__ import annotations

from typing import Any

from tests.conftest import Api, make_agent

IDLE = "No active runs"  # its normal state between turns


def test_its_start_and_a_turn(api: Api, provider: Any) -> None:
    agents = [make_agent(api, name=f"agent {n}", tags=["mobile"]) for n in range(5)]
    assert api.get("/v1/health/").status == 200
    assert api.get("/v1/agents?limit=1").status == 200

    pages = [api.get(f"/v1/agents?limit=2&offset={offset}").json() for offset in (0, 2, 4, 6)]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    listed = [agent["id"] for page in pages for agent in page]
    assert sorted(listed) == sorted(agent["id"] for agent in agents), "each one once"
    slim = api.get("/v1/agents?limit=50&offset=0&slim=true&tags=mobile").json()
    assert [agent["id"] for agent in slim] == listed
    assert all(agent["tools"] == [] and agent["blocks"] == [] for agent in slim)

    agent = agents[0]["id"]
    conversation = api.post(f"/v1/conversations?agent_id={agent}", {"summary": "Hello"}).json()[
        "id"
    ]
    query = f"agent_id={agent}&limit=50&archive_status=unarchived&order=desc"
    assert [c["id"] for c in api.get(f"/v1/conversations?{query}").json()] == [conversation]
    ambient = api.post(f"/v1/conversations/{conversation}/stream", {})
    assert ambient.status in (400, 404)
    assert IDLE in ambient.body.decode()

    provider.enqueue("Good morning.")
    sent = api.post(
        f"/v1/conversations/{conversation}/messages",
        {
            "messages": [{"role": "user", "content": "Hi", "otid": "o-1"}],
            "streaming": True,
            "stream_tokens": True,
            "include_pings": True,
            "background": True,
        },
    )
    assert sent.types()[-3:] == ["stop_reason", "usage_statistics", "[DONE]"]
    newest = api.get(f"/v1/conversations/{conversation}/messages?limit=2&order=desc").json()
    assert newest[0]["message_type"] == "assistant_message"
    older = api.get(
        f"/v1/conversations/{conversation}/messages?limit=10&order=desc&before={newest[-1]['id']}"
    ).json()
    assert not {m["id"] for m in older} & {m["id"] for m in newest}


def test_its_other_lists_page_by_offset(api: Api) -> None:
    for label in ("a", "b", "c"):
        api.post("/v1/blocks", {"label": label, "value": "x"})
    for path in ("blocks", "tools"):
        whole = [row["id"] for row in api.get(f"/v1/{path}?limit=1000").json()]
        assert len(whole) >= 3
        found: list[str] = []
        while page := api.get(f"/v1/{path}?limit=2&offset={len(found)}").json():
            found += [row["id"] for row in page]
        assert found == whole, path
        assert api.get(f"/v1/{path}?offset=-1").status == 422
    for path in (
        "archives",
        "folders",
        "groups",
        "identities",
        "jobs",
        "providers",
        "runs",
        "steps",
    ):
        assert api.get(f"/v1/{path}/?limit=50").status == 200, path
    for path in ("mcp-servers", "models", "messages", "tags"):
        assert api.get(f"/v1/{path}?limit=50&offset=0").status == 200, path
