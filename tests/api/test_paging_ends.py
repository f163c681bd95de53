"""Every list can be walked with `after` to its end, as the SDKs do: each row once, then an empty page."""

from __future__ import annotations

from typing import Any

from tests.api.routes import World, all_routes
from tests.conftest import Api

PAGES = 300
OLD_FORM = ("agents/{agent}/messages", "conversations/{agent}/messages")  # decision 0001


def rows_of(answer: Any) -> list[dict[str, Any]] | None:
    if answer.status != 200 or answer.headers.get("content-type") != "application/json":
        return None
    found = answer.json()
    is_list = isinstance(found, list) and found and isinstance(found[0], dict)
    return found if is_list and "id" in found[0] else None


def test_every_list_ends(api: Api, world: World) -> None:
    walked = set()
    for route in all_routes():
        if route.method != "GET" or route.is_endless or "?" in route.path:
            continue
        path = f"/v1/{world.fill(route.path)}"
        whole = rows_of(api.get(f"{path}?limit=1000"))
        if whole is None or route.path in OLD_FORM or not takes_cursors(api, path):
            continue
        walked.add(route.path)
        for order in ("asc", "desc"):
            found: list[str] = []
            for _ in range(PAGES):
                cursor = f"&after={found[-1]}" if found else ""
                page = api.get(f"{path}?limit=2&order={order}{cursor}").json()
                if not page:
                    break
                found += [row["id"] for row in page]
                assert len(found) == len(set(found)), (path, order, "a row comes again")
            assert sorted(found) == sorted(row["id"] for row in whole), (path, order)
    assert len(walked) > 15, walked


def takes_cursors(api: Api, path: str) -> bool:
    """Tell whether the list has pages at all: one row at a time is fewer than all."""
    return len(api.get(f"{path}?limit=0").json()) == 0
