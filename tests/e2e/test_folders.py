"""Folders and files with the unmodified Python SDK, a real worker and a turn that opens a file."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from letta_client import ConflictError, Letta, NotFoundError

from tests.e2e.conftest import Serve


@pytest.fixture
def client(server: Serve) -> Letta:
    return Letta(base_url=server.url, api_key="local-dev-key")


def wait_until_read(client: Letta, folder_id: str, file_id: str) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        file = client.folders.files.retrieve(file_id, folder_id=folder_id)
        if file.processing_status in ("completed", "error"):
            return file
        time.sleep(0.1)
    raise AssertionError("the file was not read in time")


def test_an_agent_reads_an_uploaded_file(client: Letta) -> None:
    folder = client.folders.create(name="manuals", description="How things work")
    sent = client.folders.files.upload(folder.id, file=("boiler.md", b"Press the red button.\n"))
    assert wait_until_read(client, folder.id, sent.id).processing_status == "completed"
    agent = client.agents.create(name="Ani", model="openai/double")
    client.agents.folders.attach(folder.id, agent_id=agent.id)
    assert [f.id for f in client.agents.folders.list(agent.id)] == [folder.id]
    assert list(client.folders.agents.list(folder.id)) == [agent.id]
    [attached] = list(client.agents.files.list(agent.id))
    assert attached.is_open
    assert attached.file_name == "manuals/boiler.md"
    assert client.agents.files.close_all(agent.id) == ["manuals/boiler.md"]

    tool = {"name": "open_files", "arguments": {"file_requests": [{"file_name": "boiler.md"}]}}
    prompt = f"look ## {json.dumps({'tool': tool})}"
    answer = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": prompt}])
    [returned] = [m for m in answer.messages if m.message_type == "tool_return_message"]
    assert returned.status == "success", returned
    assert "manuals/boiler.md (lines 1-1)" in str(returned.tool_return)
    client.agents.files.close(sent.id, agent_id=agent.id)
    assert client.agents.files.open(sent.id, agent_id=agent.id) == []

    assert [f.id for f in client.folders.files.list(folder.id)] == [sent.id]
    with pytest.raises(ConflictError):
        client.folders.create(name="manuals")
    assert client.folders.update(folder.id, instructions="Read.").instructions == "Read."
    client.agents.folders.detach(folder.id, agent_id=agent.id)
    client.folders.files.delete(sent.id, folder_id=folder.id)
    client.folders.delete(folder.id)
    with pytest.raises(NotFoundError):
        client.folders.retrieve(folder.id)
