"""/openapi.json describes every route, without a warning of the generator."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

from conversations.api.openapi import completion
from tests.api.routes import all_routes
from tests.conftest import Api


def test_it_is_served(idle_api: Api) -> None:
    for path in ("/openapi.json", "/v1/openapi.json"):
        answer = idle_api.get(path)
        assert answer.status == 200
        assert answer.json()["info"]["title"] == "Souveraine"


def test_every_route_is_described() -> None:
    GENERATOR_STATS.reset()
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    assert not GENERATOR_STATS._warn_cache
    assert not GENERATOR_STATS._error_cache
    operations = [
        (method.upper(), path) for path, found in schema["paths"].items() for method in found
    ]
    described = {(method, len(path.strip("/").split("/"))) for method, path in operations}
    for route in all_routes():
        depth = len(("v1/" + route.path.partition("?")[0]).strip("/").split("/"))
        assert (route.method, depth) in described, route
    create = schema["paths"]["/v1/agents/"]["post"]
    assert "memory_blocks" in str(schema["components"]["schemas"]["CreateAgent"])
    assert create["requestBody"]
    names = {p["name"] for p in schema["paths"]["/v1/agents/"]["get"]["parameters"]}
    assert {"limit", "after", "before", "order", "tags", "include"} <= names
    ids = [found["operationId"] for path in schema["paths"].values() for found in path.values()]
    assert len(ids) == len(set(ids))
    tags = {tag for path in schema["paths"].values() for op in path.values() for tag in op["tags"]}
    assert {"agents", "archives", "conversations"} <= tags
    undescribed = [
        op["operationId"]
        for path in schema["paths"].values()
        for op in path.values()
        if op["operationId"] not in {known["id"] for known in completion.operations().values()}
    ]
    assert not undescribed, "each has an entry in operations.json"


def test_the_page_for_people_comes_from_here(idle_api: Api) -> None:
    page = idle_api.get("/docs").body.decode()
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert sources
    for source in sources:
        assert source.startswith("/static/"), source
        assert idle_api.get(source).status == 200, source
    assert "/openapi.json" in page
