"""This version starts on the data of each released version and loses nothing of it."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Serve, model_double

FIXTURES = sorted(Path(__file__).parent.glob("*.tar.gz"))

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def upgraded(request: Any, tmp_path: Path) -> Iterator[httpx.Client]:
    data_dir = tmp_path / "data"
    with tarfile.open(request.param) as archive:
        archive.extractall(data_dir, filter="data")
    with model_double() as double:
        server = Serve(data_dir, {"OPENAI_BASE_URL": double})
        server.start()
        try:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                yield client
        finally:
            server.stop()


def kinds(client: httpx.Client, path: str) -> list[str]:
    return [m["message_type"] for m in client.get(path).json()]


def test_nothing_is_lost_and_the_next_message_works(upgraded: httpx.Client) -> None:
    agents = {a["name"]: a for a in upgraded.get("/v1/agents/").json()}
    assert sorted(agents) == ["Ani", "Ben"]
    ani, ben = agents["Ani"]["id"], agents["Ben"]["id"]
    assert agents["Ani"]["tags"] == ["old", "Ani"]
    assert agents["Ani"]["metadata"] == {"k": 1}
    assert [s["key"] for s in agents["Ani"]["secrets"]] == ["TOKEN"]
    human = upgraded.get(f"/v1/agents/{ani}/core-memory/blocks/human").json()
    assert human["value"] == "Name: Bob\nLikes jam"
    projects = [
        upgraded.get(f"/v1/agents/{a}/core-memory/blocks/project").json() for a in (ani, ben)
    ]
    assert projects[0] == projects[1]
    assert (projects[0]["value"], projects[0]["tags"]) == ("Violin", ["t"])
    assert kinds(upgraded, f"/v1/agents/{ani}/messages?conversation_id=default") == [
        "system_message",
        "user_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
        "user_message",
        "assistant_message",
    ]
    assert (
        kinds(upgraded, f"/v1/agents/{ben}/messages?conversation_id=default")[-1] == "user_message"
    )
    conversation = upgraded.get(f"/v1/conversations/?agent_id={ani}").json()[0]
    assert conversation["summary"] == "Old talk"
    assert upgraded.get(f"/v1/runs/?agent_id={ben}").json()[0]["status"] == "failed"

    search = {"name": "conversation_search", "arguments": {"query": "violin"}}
    from tests.e2e.test_python_sdk import script

    body = {
        "messages": [
            {"role": "user", "content": script("what do I play?", tool=search, text="The violin.")}
        ]
    }
    answer = upgraded.post(f"/v1/agents/{ani}/messages", json=body).json()
    returned = next(m for m in answer["messages"] if m["message_type"] == "tool_return_message")
    assert "My violin is from 1780" in returned["tool_return"]
    assert answer["messages"][-1]["content"] == "The violin."
