"""What cannot be meant is refused with a 4xx that says what to do, and nothing of it is stored."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.models import Agent, AgentBlock, AgentTag, Block
from conversations.models import Conversation, Message, Run
from tests.api.routes import PERSON, SOURCE, Route, World, all_routes, filled
from tests.conftest import Answer, Api, make_agent

COUNTED = (Agent, AgentBlock, AgentTag, Block, Conversation, Message, Run)
NO_ID = "00000000-0000-4000-8000-000000000000"
JSON_TYPE = {"content-type": "application/json"}
DEEP = 100_000


def snapshot() -> list[Any]:
    """Return what must not change: the numbers of rows, and the names and texts that are stored."""
    counts: list[Any] = [model.objects.count() for model in COUNTED]
    names = sorted(Agent.objects.values_list("name", "description"))
    return [*counts, names, sorted(Block.objects.values_list("label", "value", "limit"))]


NO_JSON = re.compile(
    "attach|detach|^jobs/|^agents/import$|/upload$|/files/|providers/.+/(check|refresh)$|voice-beta|/refresh$|/run$|mine/(resync|roll|tools)"
)
OWN_LIMITS = ("agents/import",)  # they take files


def writing() -> list[Route]:
    return [route for route in all_routes() if route.method in ("POST", "PATCH")]


def reading_bodies() -> list[Route]:
    return [r for r in writing() if not NO_JSON.search(r.path)]


def send_raw(api: Api, world: World, route: Route, body: Any, **headers: str) -> Answer:
    return api.request(
        route.method,
        f"/v1/{world.fill(route.path)}",
        body=body,
        headers={**JSON_TYPE, **headers},
    )


def is_clear(answer: Answer, *statuses: int) -> bool:
    """Tell whether this is a 4xx (one of `statuses`) in JSON with a text."""
    wanted = statuses or (400, 404, 405, 409, 413, 422)
    detail = answer.json()["detail"] if answer.status in wanted else ""
    return isinstance(detail, str) and len(detail) > 5


BAD_BODIES = [
    b"[]",
    b'"x"',
    b"null",
    b"5",
    b"true",
    b"{",
    b'{"a": }',
    b"{'a': 1}",
    b"\xff\xfe{}",
    b'{"name": "\xff"}',
    b'{"x": NaN}',
    b'{"x": Infinity}',
    b'{"x": -1e999}',
    b'{"x": ' + b"9" * 5000 + b"}",
    b'{"x": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"x": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    b'{"x": ' + b"[" * 150 + b"]" * 150 + b"}",
    b'{"x": "\\u0000"}',
    b'{"\\u0000": 1}',
    b'{"x": ["\\ud800"]}',
    b'{"x": "\\udfff!"}',
]


def test_a_body_that_is_no_usable_json_object_is_refused_on_every_route(
    idle_world: World, idle_api: Api
) -> None:
    before = snapshot()
    for body in BAD_BODIES:
        for route in reading_bodies():
            answer = send_raw(idle_api, idle_world, route, body)
            assert is_clear(answer, 422), (route, body[:30], answer.status, answer.body[:300])
            assert len(answer.body) < 100_000
    assert snapshot() == before


@pytest.fixture
def idle_world(idle_api: Api) -> World:
    """What Alice owns, made without a worker; the run stays queued."""
    agent = idle_api.post("/v1/agents", {"name": "a", "model": "fake/fake-model"}).json()
    made = idle_api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()
    free = idle_api.post("/v1/blocks", {"label": "project", "value": "P1"}).json()
    return World(
        agent=agent["id"],
        block=agent["blocks"][0]["id"],
        free_block=free["id"],
        conversation=made["id"],
        run=f"run-{NO_ID}",
        step=f"step-{NO_ID}",
        message=f"message-{NO_ID}",
        tool=agent["tools"][0]["id"],
        custom_tool=idle_api.post("/v1/tools", {"source_code": SOURCE}).json()["id"],
        archive=f"archive-{NO_ID}",
        passage=f"passage-{NO_ID}",
        job=f"job-{NO_ID}",
        identity=idle_api.post("/v1/identities", {**PERSON, "identifier_key": "w"}).json()["id"],
        group=idle_api.post("/v1/groups", {"agent_ids": [], "description": "d"}).json()["id"],
        folder=f"source-{NO_ID}",
        file=f"file-{NO_ID}",
        provider=f"provider-{NO_ID}",
        schedule=f"schedule-{NO_ID}",
        mcp_server=f"mcp_server-{NO_ID}",
    )


WRONG_TYPES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "agents", {"name": 5}),
    ("POST", "agents", {"name": ""}),
    ("POST", "agents", {"name": "x" * 256}),
    ("POST", "agents", {"name": "x", "tags": "t"}),
    ("POST", "agents", {"name": "x", "tags": [1]}),
    ("POST", "agents", {"name": "x", "metadata": []}),
    ("POST", "agents", {"name": "x", "context_window": -1}),
    ("POST", "agents", {"name": "x", "context_window": 10**30}),
    ("POST", "agents", {"name": "x", "memory": {"git_enabled": "perhaps"}}),
    ("POST", "agents", {"name": "x", "_souveraine": {"archivist_threshold": 7}}),
    ("POST", "agents", {"name": "x", "_souveraine": {"sensorium_bandwidth": "huge"}}),
    ("POST", "agents", {"name": "x", "memory_blocks": [{"value": "no label"}]}),
    ("POST", "agents", {"name": "x", "memory_blocks": [{"label": "../../etc/passwd"}]}),
    ("POST", "agents", {"name": "x", "memory_blocks": [{"label": "/abs"}]}),
    ("POST", "agents", {"name": "x", "memory_blocks": [{"label": ".git/config"}]}),
    (
        "POST",
        "agents",
        {"name": "x", "memory_blocks": [{"label": "a", "limit": 2, "value": "abc"}]},
    ),
    ("POST", "agents", {"name": "x", "memory_blocks": [{"label": "a", "limit": -1}]}),
    ("POST", "agents", {"name": "x", "memory_blocks": [{"label": "a"}, {"label": "a"}]}),
    ("POST", "agents", {"name": "x", "model": "fake/nope"}),
    ("POST", "agents", {"name": "x", "model": "nope/nope"}),
    ("POST", "agents", {"name": "x", "model": "noslash"}),
    ("POST", "agents", {"name": "x", "tools": ["nope"]}),
    ("POST", "agents", {"name": "x", "tool_ids": ["nope"]}),
    ("POST", "agents", {"name": "x", "tool_ids": [f"tool-{NO_ID}"]}),
    ("POST", "agents", {"name": "x", "block_ids": ["nope"]}),
    ("POST", "agents", {"name": "x", "block_ids": [f"block-{NO_ID}"]}),
    ("POST", "agents", {"name": "x", "id": "nope"}),
    ("POST", "agents", {"name": "x", "id": "{agent}"}),
    ("POST", "agents", {"name": "x", "secrets": {"A": 1}}),
    ("PATCH", "agents/{agent}", {"name": None, "context_window": 0}),
    ("PATCH", "agents/{agent}", {"name": "new", "model": "fake/nope"}),
    ("PATCH", "agents/{agent}", {"name": "new", "tools": ["nope"]}),
    ("PATCH", "agents/{agent}", {"name": "new", "block_ids": ["nope"]}),
    ("PATCH", "agents/{agent}", {"name": "new", "tool_ids": ["nope"]}),
    ("PATCH", "agents/{agent}", {"name": "new", "memory_blocks": [{"label": "../x"}]}),
    (
        "PATCH",
        "agents/{agent}",
        {
            "name": "new",
            "memory_blocks": [
                {"label": "human", "value": "changed"},
                {"label": "persona", "value": "y" * 100_001},
            ],
        },
    ),
    ("PATCH", "agents/{agent}", {"last_run_completion": "yesterday"}),
    ("PATCH", "agents/{agent}/core-memory/blocks/human", {"value": 5}),
    ("PATCH", "agents/{agent}/core-memory/blocks/human", {"value": "x" * 100_001}),
    ("PATCH", "agents/{agent}/core-memory/blocks/human", {"label": "persona"}),
    ("PATCH", "agents/{agent}/core-memory/blocks/human", {"label": "a/../b"}),
    ("PATCH", "agents/{agent}/core-memory/blocks/nope", {"value": "x"}),
    ("PATCH", "agents/{agent}/core-memory/blocks/a%00b", {"value": "x"}),
    ("PATCH", "agents/{agent}/core-memory/blocks/attach/nope", {}),
    ("PATCH", f"agents/{{agent}}/core-memory/blocks/attach/block-{NO_ID}", {}),
    ("POST", "blocks", {}),
    ("POST", "blocks", {"label": ""}),
    ("POST", "blocks", {"label": " x "}),
    ("POST", "blocks", {"label": "x" * 201}),
    ("POST", "blocks", {"label": "x", "limit": 10**12}),
    ("PATCH", "blocks/{free_block}", {"value": "12345", "limit": 2}),
    ("PATCH", f"blocks/block-{NO_ID}", {"value": "x"}),
    ("POST", "conversations", {}),
    ("POST", "conversations", {"agent_id": "nope"}),
    ("POST", "conversations", {"agent_id": f"agent-{NO_ID}"}),
    ("POST", "conversations", {"agent_id": "{agent}", "summary": 5}),
    ("POST", "conversations", {"agent_id": "{agent}", "model": "fake/nope"}),
    ("PATCH", "conversations/{conversation}", {"model": "nope/nope"}),
    ("PATCH", "conversations/{conversation}", {"last_message_at": "soon"}),
    ("POST", "agents/{agent}/messages", {}),
    ("POST", "agents/{agent}/messages", {"messages": []}),
    ("POST", "agents/{agent}/messages", {"messages": [5]}),
    ("POST", "agents/{agent}/messages", {"messages": [{}]}),
    ("POST", "agents/{agent}/messages", {"messages": [{"role": "robot", "content": "x"}]}),
    ("POST", "agents/{agent}/messages", {"messages": [{"role": "user", "content": ""}]}),
    ("POST", "agents/{agent}/messages", {"messages": [{"role": "user", "content": "  \n"}]}),
    ("POST", "agents/{agent}/messages", {"messages": [{"role": "user", "content": []}]}),
    ("POST", "agents/{agent}/messages", {"messages": [{"role": "user", "content": [{}]}]}),
    (
        "POST",
        "agents/{agent}/messages",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
    ),
    (
        "POST",
        "agents/{agent}/messages",
        {"messages": [{"role": "user", "content": [{"type": "image", "source": "x"}]}]},
    ),
    (
        "POST",
        "agents/{agent}/messages",
        {"messages": [{"role": "user", "content": "good"}, {"role": "user", "content": None}]},
    ),
    ("POST", "agents/{agent}/messages", {"input": ""}),
    ("POST", "agents/{agent}/messages", {"message": ""}),
    ("POST", "agents/{agent}/messages", {"input": "x", "message": "y"}),
    ("POST", "agents/{agent}/messages", {"input": "x", "messages": []}),
    ("POST", "agents/{agent}/messages", {"input": "x", "max_steps": 0}),
    ("POST", "agents/{agent}/messages", {"input": "x", "max_steps": 10**30}),
    ("POST", "agents/{agent}/messages", {"input": "x", "stream_tokens": True}),
    ("POST", "agents/{agent}/messages", {"input": "x", "override_model": "fake/nope"}),
    ("POST", "agents/{agent}/messages", {"input": "x", "override_model": "noslash"}),
    ("POST", "conversations/default/messages", {"input": "x"}),
    ("POST", "conversations/nope/messages", {"input": "x"}),
    ("POST", "conversations/{conversation}/stream", {}),
    ("POST", "conversations/{conversation}/stream", {"run_id": "nope"}),
    ("POST", "conversations/{conversation}/stream", {"otid": "nope"}),
    ("POST", "conversations/{conversation}/stream", {"starting_after": -1}),
    ("POST", "conversations/{conversation}/stream", {"starting_after": 10**30}),
    ("POST", f"runs/run-{NO_ID}/stream", {"starting_after": 1}),
]


def test_wrong_types_and_unknown_names_are_refused_and_nothing_is_stored(
    idle_world: World, idle_api: Api, data_dir: Any
) -> None:
    before = snapshot()
    folders = sorted(p.name for p in (data_dir / "agents").iterdir())
    for method, path, body in WRONG_TYPES:
        route = Route(method, path)
        body = filled(idle_world, body) if "{agent}" in str(body) else body
        answer = send_raw(idle_api, idle_world, route, json.dumps(body).encode())
        assert is_clear(answer), (method, path, str(body)[:200], answer.status, answer.body[:300])
        assert snapshot() == before, (method, path, str(body)[:200])
    assert sorted(p.name for p in (data_dir / "agents").iterdir()) == folders


BAD_QUERIES = [
    "agents?limit=abc",
    "agents?limit=-1",
    "agents?limit=1001",
    "agents?limit=99999999999999999999",
    "agents?limit=" + "9" * 5000,
    "agents?offset=-1",
    "agents?order=up",
    "agents?order_by=name",
    "agents?after=nope",
    f"agents?after=agent-{NO_ID}",
    f"agents?before=agent-{NO_ID}",
    "agents?name=%00",
    "agents?tags=a%00",
    "agents?created_by_id=nope",
    "agents?match_all_tags=perhaps",
    "agents?" + "&".join(f"tags={n}" for n in range(1100)),
    "agents/count?limit=x",
    "agents/nope",
    "agents/agent-nope",
    f"agents/agent-{NO_ID}",
    f"agents/agent-{NO_ID}%0A",
    "agents/%00",
    "agents/" + "x" * 5000,
    "agents/{agent}/core-memory/blocks?limit=x",
    f"agents/{{agent}}/core-memory/blocks?after=block-{NO_ID}",
    "agents/{agent}/core-memory/blocks/nope",
    "agents/{agent}/core-memory/blocks/a%00b",
    "agents/{agent}/messages?limit=-1",
    "agents/{agent}/messages?before=nope",
    f"agents/{{agent}}/messages?before=message-{NO_ID}",
    "agents/{agent}/messages?conversation_id=nope",
    f"agents/{{agent}}/messages?conversation_id=conv-{NO_ID}",
    "blocks?after=nope",
    f"blocks?after=block-{NO_ID}",
    "blocks/nope",
    "blocks/nope/agents",
    "conversations?agent_id=nope",
    f"conversations?agent_id=agent-{NO_ID}",
    f"conversations?after=conv-{NO_ID}",
    "conversations?order_by=summary",
    "conversations/nope",
    "conversations/{conversation}/messages?limit=x",
    f"conversations/{{conversation}}/messages?after=message-{NO_ID}",
    "conversations/default/messages?agent_id=nope",
    "runs?agent_id=nope",
    "runs?conversation_id=nope",
    "runs?after=nope",
    f"runs?after=run-{NO_ID}",
    "runs?background=perhaps",
    "runs/nope",
    "runs/nope/steps",
    "nothing",
    "agents/{agent}/nothing",
]


def test_bad_paths_and_queries_are_refused(idle_world: World, idle_api: Api) -> None:
    for path in BAD_QUERIES:
        answer = idle_api.get(f"/v1/{idle_world.fill(path)}")
        assert is_clear(answer, 400, 404, 422), (path[:200], answer.status, answer.body[:300])


def test_odd_but_lawful_queries_work(idle_world: World, idle_api: Api) -> None:
    for path in (
        "agents?limit=0",
        "agents?unknown=1",
        "agents?name=%FF",
        "agents?name=%ED%A0%80",
        "agents?query_text=%25",
        "agents?tags[]=a",
        "agents/{agent}?include=agent.nothing",
        "conversations/default/messages",
        "agents/{agent}/messages?include_return_message_types=nothing",
    ):
        answer = idle_api.get(f"/v1/{idle_world.fill(path)}")
        assert answer.status == 200, (path, answer.body)


def test_every_route_answers_every_method(idle_world: World, idle_api: Api) -> None:
    before = snapshot()
    for path in sorted({route.path for route in all_routes()}):
        target = f"/v1/{idle_world.fill(path)}"
        for method in ("HEAD", "OPTIONS", "PUT", "TRACE", "FROBNICATE"):
            answer = idle_api.request(method, target)
            if (
                method == "PUT"
                and path.startswith(("tools", "identities"))
                and answer.status != 405
            ):
                assert answer.status == 422, "an upsert needs a body"
            elif method in ("PUT", "TRACE", "FROBNICATE"):
                assert answer.status == 405, (method, path, answer.status)
                assert answer.json()["detail"] == "Method Not Allowed"
            else:
                assert answer.status in (200, 404, 405), (method, path, answer.status)
    assert snapshot() == before


def test_a_body_over_the_limit_gets_413_that_names_it(idle_world: World, idle_api: Api) -> None:
    limit = 20 * 1024 * 1024
    before = snapshot()
    for route in writing():
        if route.path in OWN_LIMITS:
            continue
        declared = send_raw(
            idle_api, idle_world, route, b"{}", **{"content-length": str(limit + 1)}
        )
        assert declared.status == 413, route
        assert declared.json()["max_request_bytes"] == limit
        assert str(limit) in declared.json()["detail"]
    pieces = [b'{"label": "' + b"x" * 1024 * 1024, *[b"x" * 1024 * 1024] * 20, b'"}']
    assert send_raw(idle_api, idle_world, Route("POST", "blocks"), pieces).status == 413
    assert snapshot() == before


def test_a_body_sent_in_chunks_without_a_length_is_read(idle_api: Api) -> None:
    pieces = [b'{"label": ', b'"chunked"', b', "value": "v"}']
    answer = idle_api.request("POST", "/v1/blocks", body=pieces, headers=JSON_TYPE)
    assert (answer.status, answer.json()["label"]) == (200, "chunked")


def test_the_content_type_does_not_matter_and_other_formats_are_refused(idle_api: Api) -> None:
    for kind in (
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "x;=",
        "a/b; charset=nope",
    ):
        good = idle_api.request(
            "POST", "/v1/blocks", body=b'{"label": "x"}', headers={"content-type": kind}
        )
        assert good.status == 200, (kind, good.body)
        bad = idle_api.request(
            "POST", "/v1/blocks", body=b"label=x", headers={"content-type": kind}
        )
        assert is_clear(bad, 422), (kind, bad.body)


def test_very_long_texts_are_kept_or_refused_by_their_limit(
    idle_world: World, idle_api: Api
) -> None:
    long = "ä" * 1_000_000
    path = f"/v1/agents/{idle_world.agent}"
    assert idle_api.patch(path, {"description": long}).json()["description"] == long
    assert is_clear(idle_api.patch(path, {"description": "x" * 5_000_001}), 422)
    refused = idle_api.patch(f"{path}/core-memory/blocks/human", {"value": long})
    assert is_clear(refused, 400)
    assert "1000000 characters, its limit is 100000" in refused.json()["detail"]


def test_numbers_beyond_64_bits_come_back_as_they_were_sent(idle_api: Api) -> None:
    sent = {"n": 2**80, "f": 1.5, "t": "\u2028 é"}
    agent = make_agent(idle_api, metadata=sent)
    assert agent["metadata"] == sent
    assert idle_api.get(f"/v1/agents/{agent['id']}").json()["metadata"] == sent


def test_null_in_a_body_is_never_a_server_error(idle_world: World, idle_api: Api) -> None:
    bodies = {
        "agents/{agent}": "name description tags tools tool_ids block_ids metadata model llm_config "
        "model_settings memory _souveraine secrets hidden timezone memory_blocks tool_rules",
        "agents/{agent}/core-memory/blocks/human": "value label limit description read_only "
        "metadata tags hidden",
        "blocks/{free_block}": "value label limit description read_only metadata tags hidden",
        "conversations/{conversation}": "summary model model_settings last_message_at",
    }
    for path, names in bodies.items():
        target = f"/v1/{idle_world.fill(path)}"
        for name in names.split():
            answer = idle_api.patch(target, {name: None})
            assert answer.status == 200, (path, name, answer.body)
            assert idle_api.get(target).status == 200


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = [
    "name",
    "label",
    "value",
    "limit",
    "tags",
    "metadata",
    "memory",
    "memory_blocks",
    "tools",
    "tool_ids",
    "block_ids",
    "model",
    "llm_config",
    "model_settings",
    "context_window",
    "_souveraine",
    "souveraine",
    "persona",
    "system",
    "secrets",
    "description",
    "messages",
    "input",
    "message",
    "max_steps",
    "agent_id",
    "summary",
    "last_message_at",
    "isolated_block_labels",
    "starting_after",
    "run_id",
    "otid",
    "include_return_message_types",
    "override_model",
    "client_tools",
    "read_only",
    "hidden",
    "id",
    "tool_rules",
    "response_format",
    "timezone",
    "embedding",
    "compaction_settings",
]
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=4)


def test_no_body_makes_a_server_error(world: World, api: Api) -> None:
    routes = writing()

    @settings(
        max_examples=100,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(routes), bodies)
    def fuzz(route: Route, body: dict[str, Any]) -> None:
        answer = send_raw(api, world, route, json.dumps(body).encode())
        assert answer.status < 500, (route, body, answer.body)

    fuzz()
