"""Walks through lists as the clients do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conftest import Api


def walk(
    api: Api,
    path: str,
    *,
    by: str = "after",
    limit: int = 2,
    between: Callable[[int], None] | None = None,
) -> list[str]:
    """Return all ids from the first page to an empty one; `between` is called after each page.

    `by="after"` continues behind the last row (the SDKs' pager), `by="before"` before the first one.
    """
    found: list[str] = []
    cursor = ""
    for number in range(100):
        glue = "&" if "?" in path else "?"
        answer = api.get(f"{path}{glue}limit={limit}{cursor}")
        assert answer.status == 200, answer.body
        rows: list[dict[str, Any]] = answer.json()
        if not rows:
            return found
        ids = [row["id"] for row in rows]
        found = found + ids if by == "after" else ids + found
        cursor = f"&{by}={ids[-1] if by == 'after' else ids[0]}"
        if between is not None:
            between(number)
    raise AssertionError("the list does not end")
