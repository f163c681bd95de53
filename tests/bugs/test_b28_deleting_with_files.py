"""Reported problems of folders and files: deletion with files attached (B28)."""

from __future__ import annotations

from typing import Any

from agents.jobs import running
from agents.models import Agent, AgentFile, File, Folder, Job, JobStatus
from tests.api.test_folders import upload
from tests.conftest import Api, make_agent


def test_b28_an_agent_with_files_is_deleted_at_once_and_shared_folders_stay(idle_api: Api) -> None:
    """letta #2266: a foreign key stood in the way of deleting an agent with files."""
    folder: dict[str, Any] = idle_api.post("/v1/folders", {"name": "shared"}).json()
    upload(idle_api, folder, "a.txt", b"Hello")
    for job in Job.objects.filter(status=JobStatus.CREATED):
        running.work(job.pk)
    first, second = (make_agent(idle_api, name=n, folder_ids=[folder["id"]]) for n in "ab")
    upload(idle_api, folder, "b.txt", b"still being read")
    assert idle_api.delete(f"/v1/agents/{first['id']}").status == 200
    assert idle_api.delete(f"/v1/agents/{first['id']}").status == 404
    assert Folder.objects.count() == 1
    assert File.objects.count() == 2
    assert {f"agent-{row.agent_id}" for row in AgentFile.objects.all()} == {second["id"]}
    for job in Job.objects.filter(status=JobStatus.CREATED):
        running.work(job.pk)  # the file that was being read comes to the agent that is left
    assert AgentFile.objects.count() == 2
    assert Agent.objects.get().folder_count == 1
