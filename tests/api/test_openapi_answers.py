"""What the routes answer is what `/openapi.json` says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator

from conversations.api.openapi.completion import shape
from tests.api.routes import World, all_routes, filled
from tests.conftest import Api, wait_for

EXAMPLE_AGENT = "agent-123e4567-e89b-42d3-8456-426614174000"
EXAMPLE_MODEL = "openai/gpt-4o-mini"


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found


def test_every_route_answers_as_described(
    api: Api, world: World, described: dict[str, Any]
) -> None:
    operations = {
        shape(method, path): operation
        for path, found in described["paths"].items()
        for method, operation in found.items()
    }
    wrong = []
    for route in all_routes():
        if route.is_endless:
            continue
        path = world.fill(route.path)
        answer = api.request(route.method, f"/v1/{path}", filled(world, route.body))
        key = template_of(route.method, f"/v1/{path.partition('?')[0]}", operations)
        operation = operations[key]
        content = operation["responses"].get(str(answer.status), operation["responses"]["4XX"])
        if answer.status == 204:
            assert (answer.body, "content" in content) == (b"", False), route
            continue
        assert "content-type" in answer.headers, (route, answer.status)
        kind = answer.headers["content-type"].partition(";")[0]
        if kind == "text/event-stream":
            continue
        schema = {
            **content["content"][kind]["schema"],
            "components": described["components"],
        }
        wrong += [
            (key, answer.status, list(error.absolute_path), error.message[:300])
            for error in Draft202012Validator(schema).iter_errors(answer.json())
        ]
    assert not wrong, "\n".join(map(str, wrong))


def test_a_missing_field_would_be_seen(described: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/AgentState", "components": described["components"]}
    missing = [e.message for e in Draft202012Validator(schema).iter_errors({"id": "agent-1"})]
    assert "'llm_config' is a required property" in missing


def template_of(method: str, path: str, operations: dict[str, Any]) -> str:
    """Find the described operation that `path` belongs to; literal parts go before places."""
    parts = path.strip("/").split("/")
    fitting = [
        key
        for key in operations
        if key.split(" ")[0] == method
        and len(key.split(" ")[1].strip("/").split("/")) == len(parts)
        and all(
            a in ("{}", b)
            for a, b in zip(key.split(" ")[1].strip("/").split("/"), parts, strict=True)
        )
    ]
    assert fitting, (method, path)
    return min(fitting, key=lambda key: key.count("{}"))


def test_the_examples_run(api: Api, world: World, described: dict[str, Any]) -> None:
    tried = 0
    for path, found in described["paths"].items():
        for method, operation in found.items():
            contents = operation.get("requestBody", {}).get("content", {})
            example = contents.get("application/json", {}).get("example")
            if example is None:
                continue
            text = json.dumps(example).replace(EXAMPLE_AGENT, world.agent)
            body = json.loads(text.replace(EXAMPLE_MODEL, "fake/fake-model"))
            places = {f"{name}_id": value for name, value in vars(world).items()}
            where = path.format(**{**places, "block_label": "human"})
            answer = api.request(method.upper(), where, body)
            assert answer.status == 200, (method, where, answer.body)
            wait_for(lambda: api.get("/v1/runs/active").json() == [])
            tried += 1
    assert tried > 15
