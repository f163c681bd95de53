"""Requests share threads and their database connections."""

from __future__ import annotations

from typing import Any

from django.db.backends.signals import connection_created

from tests.conftest import Api


def test_requests_do_not_open_connections_of_their_own(api: Api, agent: dict[str, Any]) -> None:
    opened: list[Any] = []

    def note(connection: Any, **kwargs: Any) -> None:
        opened.append(connection)

    connection_created.connect(note)
    try:
        for _ in range(12):
            assert api.get(f"/v1/agents/{agent['id']}").status == 200
    finally:
        connection_created.disconnect(note)
    assert len(opened) <= 3  # a thread may be made while the one before it is about to be free
