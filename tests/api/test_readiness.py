"""`/v1/ready` says what cannot be reached; `/v1/health` asks nobody."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connections
from redis import RedisError

from souveraine.api import readiness
from tests.conftest import Api


def test_ready(idle_api: Api) -> None:
    answer = idle_api.get("/v1/ready/")
    assert (answer.status, answer.json()["status"]) == (200, "ok")
    assert answer.json() == idle_api.get("/v1/health/").json()


def test_what_cannot_be_reached_is_named(idle_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OperationalError("unable to open database file")

    def no_redis() -> None:
        raise RedisError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(readiness, "sync_client", no_redis)
        answer = idle_api.get("/v1/ready")
        assert answer.status == 503
        assert answer.json()["detail"].endswith("Not ready: cannot reach Redis.")
        patch.setattr(type(connections["default"]), "cursor", lambda self: refuse())
        assert "the database and Redis" in idle_api.get("/v1/ready").json()["detail"]
        assert idle_api.get("/v1/health").status == 200
    assert idle_api.get("/v1/ready").status == 200
