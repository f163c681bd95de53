"""What a plain turn asks the database: a budget, so that queries do not creep back into every turn."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db.backends.utils import CursorWrapper

from conversations.turn import callbacks
from conversations.turn import worker as worker_module
from souveraine.testing.fake_provider import Reply
from tests.conftest import wait_for

WEB, WORKER_BEFORE_MODEL, WORKER = 8, 8, 25
REPOSITORY_LOCK = ("SELECT pg_advisory", "SELECT set_config('lock_timeout'")  # PostgreSQL only
NO_QUERIES = ("PRAGMA", "BEGIN", "SAVEPOINT", "RELEASE", *REPOSITORY_LOCK)


@pytest.fixture(autouse=True)
def no_background_duties(monkeypatch: Any) -> None:
    """Before the worker starts: its sweeps would be counted with the turn."""
    monkeypatch.setattr(worker_module, "SWEEP_SECONDS", 3600)
    monkeypatch.setattr(worker_module, "CANCEL_POLL_SECONDS", 3600)
    monkeypatch.setattr(callbacks, "LOOK_SECONDS", 3600)


@pytest.fixture
def queries(monkeypatch: Any) -> list[tuple[str, str]]:
    """Each statement with the pool of its thread (`request`, `stream-db`, `turn-db`)."""
    seen: list[tuple[str, str]] = []
    execute = CursorWrapper.execute

    def counted(self: Any, sql: Any, params: Any = None) -> Any:
        if not str(sql).startswith(NO_QUERIES):
            seen.append((threading.current_thread().name.rpartition("_")[0], str(sql)))
        return execute(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", counted)
    return seen


def test_queries_of_a_plain_turn(
    api: Any, worker: Any, agent: Any, provider: Any, queries: list[tuple[str, str]]
) -> None:
    def turn() -> None:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream_tokens": True}
        answer = api.post(f"/v1/agents/{agent['id']}/messages/stream", body)
        assert answer.types()[-1] == "[DONE]"
        wait_for(lambda: not worker._live)

    def count(pool: str, end: int | None = None) -> int:
        return sum(name == pool for name, _ in queries[:end])

    turn()  # makes the default conversation, its system message and its files
    asked_at: list[int] = []
    provider.enqueue(Reply(text="Hello.", before=lambda request: asked_at.append(len(queries))))
    queries.clear()
    turn()
    listed = "\n".join(f"{name}: {sql[:200]}" for name, sql in queries)
    assert count("request") == WEB, listed
    assert count("turn-db", asked_at[0]) == WORKER_BEFORE_MODEL, listed
    assert count("turn-db") == WORKER, listed
    assert count("stream-db") == 0, listed
