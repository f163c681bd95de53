"""What Alice owns, for the tests that ask who may see it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents.models import File, Job, User
from tests.api.routes import MESSAGE, SOURCE, World
from tests.conftest import Api


@pytest.fixture
def world(api: Api, agent: dict[str, Any]) -> World:
    """An agent with a turn in a conversation, and a block that no agent has."""
    conversation = api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()
    path = f"/v1/conversations/{conversation['id']}/messages"
    sent = api.post(path, {"input": "Hello", "streaming": False})
    assert sent.status == 200, sent.body
    custom = api.post("/v1/tools", {"source_code": SOURCE.replace("roll", "own_roll")}).json()
    free = api.post("/v1/blocks", {"label": "project", "value": "P1"}).json()
    archive = api.post("/v1/archives", {"name": "facts"}).json()
    passage = api.post(f"/v1/archives/{archive['id']}/passages", {"text": "A fact."}).json()
    folder = api.post("/v1/folders", {"name": "manuals"}).json()
    file = File.objects.create(
        folder_id=folder["id"].removeprefix("source-"),
        name="a.txt",
        original_name="a.txt",
        media_type="text/plain",
        size_bytes=1,
    )
    address = {"base_url": "http://127.0.0.1:9", "api_key": "k"}
    added = api.post("/v1/providers", {"name": "mine", "provider_type": "openai", **address}).json()
    later = {**MESSAGE, "schedule": {"scheduled_at": 4_000_000_000_000}}
    scheduled = api.post(f"/v1/agents/{agent['id']}/schedule", later).json()
    server = api.post(
        "/v1/mcp-servers",
        {"server_name": "mine", "config": {"server_url": "https://mcp.example/"}},
    ).json()
    job = Job.objects.create(
        owner_id=User.FIRST_ID, kind="nothing", due_at=timezone.now() + timedelta(days=1)
    )
    person = {"identifier_key": "u-1", "name": "U", "identity_type": "user"}
    identity = api.post("/v1/identities", person).json()
    group = api.post("/v1/groups", {"agent_ids": [agent["id"]], "description": "d"}).json()
    return World(
        agent=agent["id"],
        block=agent["blocks"][0]["id"],
        free_block=free["id"],
        conversation=conversation["id"],
        run=sent.json()["messages"][0]["run_id"],
        step=sent.json()["messages"][0]["step_id"],
        message=sent.json()["messages"][0]["id"],
        tool=agent["tools"][0]["id"],
        custom_tool=custom["id"],
        archive=archive["id"],
        passage=passage["id"],
        job=f"job-{job.pk}",
        identity=identity["id"],
        group=group["id"],
        folder=folder["id"],
        file=f"file-{file.pk}",
        provider=added["id"],
        schedule=scheduled["id"],
        mcp_server=server["id"],
    )
