"""`/latest` is `/v1`, and what clients ask for in vain is told once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from souveraine.api import unknown
from tests.conftest import Api, make_agent

NO_ID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    unknown._told.clear()
    yield
    unknown._told.clear()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "unknown_route" in r.getMessage()]


def test_latest_is_v1_for_reads_writes_and_streams(api: Api, agent: dict[str, Any]) -> None:
    assert api.get("/latest/agents/").json()[0]["id"] == agent["id"]
    path = f"/latest/agents/{agent['id']}"
    assert api.patch(path, {"name": "Ani"}).json()["name"] == "Ani"
    sent = api.post(f"{path}/messages/stream", {"input": "Hi"})
    assert sent.types()[-1] == "[DONE]"
    assert api.get("/latest/nothing").status == 404
    assert api.get("/latestagents").status == 404


def test_an_unknown_route_is_told_once(idle_api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for path in (f"/v1/crons/cron-{NO_ID}", f"/v1/crons/{NO_ID}", "/v1/crons/17"):
            answer = idle_api.get(path)
            assert (answer.status, answer.json()) == (404, {"detail": "Not Found"})
        idle_api.post("/v1/crons/17")
        idle_api.get("/elsewhere")
    assert told(caplog) == [
        "event=unknown_route method=GET route=/v1/crons/{id}",
        "event=unknown_route method=POST route=/v1/crons/{id}",
    ]


def test_a_known_route_without_the_thing_is_not_told(
    idle_api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    make_agent(idle_api)
    with caplog.at_level(logging.WARNING):
        assert idle_api.get(f"/v1/agents/agent-{NO_ID}").status == 404
    assert told(caplog) == []


def test_a_stranger_can_not_fill_log_and_memory(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            unknown.note_unknown("GET", "/v1/" + "x" * number)
        unknown.note_unknown("GET", "/v1/\n" + "y")
    assert len(told(caplog)) <= unknown.MAX_ROUTES
    assert all(len(line) < 250 and "\n" not in line for line in told(caplog))
