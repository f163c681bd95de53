"""docs/sdk.md has each method of the official client, and what it says of it is so."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from letta_client import Letta
from letta_client._resource import SyncAPIResource

from conversations.api.openapi.completion import shape

DOCUMENT = Path(__file__).parents[2] / "docs" / "sdk.md"
ROW = re.compile(r"^\| `([\w.]+)` \| `(\w+) (\S+)` \| (.+) \|$", re.MULTILINE)
CALL = re.compile(r'self\._(\w+)\(\s*(?:path_template\()?\s*f?"(/v1[^"]+)"')


def methods(resource: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (name, HTTP method, path) of a client's methods, those of its parts included."""
    for attribute, member in inspect.getmembers_static(type(resource)):
        if attribute.startswith(("_", "with_")):
            continue
        if "cached_property" in type(member).__name__:
            part = getattr(resource, attribute)
            if isinstance(part, SyncAPIResource):
                yield from methods(part, f"{name}{attribute}.")
        elif inspect.isfunction(member) and name:
            called = CALL.search(inspect.getsource(member))
            if called:
                verb = "GET" if called[1].startswith("get") else called[1].upper()
                yield name + attribute, verb, called[2]


@pytest.fixture(scope="module")
def table() -> dict[str, tuple[str, str, str]]:
    return {row[0]: row[1:] for row in ROW.findall(DOCUMENT.read_text("utf-8"))}


def test_every_method_of_the_client_is_in_the_table(table: dict[str, Any]) -> None:
    client = Letta(base_url="http://127.0.0.1:1", api_key="x")
    known = {name: shape(verb, path) for name, verb, path in methods(client)}
    assert len(known) > 100
    assert {name: shape(verb, path) for name, (verb, path, _) in table.items()} == known


def test_what_works_has_a_route_and_what_is_not_offered_has_none(table: dict[str, Any]) -> None:
    described = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    routes = {shape(method, path) for path, found in described.items() for method in found}
    for name, (verb, path, verdict) in table.items():
        assert verdict.split()[0].strip(";:,") in ("works", "differs", "not"), name
        assert (shape(verb, path) in routes) != verdict.startswith("not offered"), name
