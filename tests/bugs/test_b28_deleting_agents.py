"""B28 (letta-ai/letta #1917, #2266, #2631): deleting an agent takes what is its own, and nothing that others have."""

from __future__ import annotations

from typing import Any

from agents.models import Agent, Block
from conversations.models import Message
from tests.agent_files.files import agent as file_agent
from tests.agent_files.files import document, upload
from tests.conftest import Api


def test_shared_blocks_stay_and_own_ones_go(api: Api, provider: Any) -> None:
    group = {
        "id": "group-0",
        "agent_ids": ["agent-1"],
        "description": "",
        "manager_config": {"manager_type": "sleeptime", "manager_agent_id": "agent-0"},
        "shared_block_ids": ["block-1"],
    }
    both = [
        file_agent(0, block_ids=["block-0", "block-1"]),
        file_agent(1, name="Z", block_ids=["block-1"]),
    ]
    first, second = upload(api, document(*both, groups=[group])).json()["agent_ids"]
    person = {"identifier_key": "u", "name": "U", "identity_type": "user", "agent_ids": [first]}
    identity = api.post("/v1/identities", person).json()["id"]
    isolated = api.post(
        f"/v1/conversations?agent_id={first}", {"isolated_block_labels": ["human"]}
    ).json()
    path = f"/v1/conversations/{isolated['id']}"
    assert api.post(f"{path}/fork").status == 200
    assert api.post(f"{path}/messages", {"input": "hi", "streaming": False}).status == 200
    assert api.delete(f"/v1/agents/{first}").status == 200
    assert api.delete(f"/v1/agents/{first}").status == 404
    left = {(b.label, b.config.get("own", "")) for b in Block.objects.all()}
    assert ("project", "") in left
    assert {own for _, own in left} == {"", second.removeprefix("agent-")}
    assert not any(label == "human" and not own for label, own in left)
    labels = [b["label"] for b in api.get(f"/v1/agents/{second}").json()["blocks"]]
    assert "project" in labels
    assert api.get("/v1/groups").json()[0]["agent_ids"] == [second]
    assert api.get(f"/v1/identities/{identity}").json()["agent_ids"] == []
    assert {m.agent_id for m in Message.objects.all()} == {Agent.objects.get().pk}
