"""`memory.git_enabled` and `memory.auto_commit`: what is committed, and that switching loses nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent


def tree(data_dir: Path, agent: dict[str, Any]) -> Path:
    return data_dir / "agents" / agent["id"].removeprefix("agent-") / "memory.git"


def commits(data_dir: Path, agent: dict[str, Any]) -> list[str]:
    ran = subprocess.run(
        ["git", "log", "--format=%s"],
        cwd=tree(data_dir, agent),
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.splitlines()


def value(api: Api, agent: dict[str, Any]) -> str:
    return str(api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"])


def change(api: Api, agent: dict[str, Any], text: str) -> None:
    answer = api.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/human", {"value": text})
    assert (answer.status, answer.json()["value"]) == (200, text)


def insert_by_turn(api: Api, agent: dict[str, Any], provider: Any, text: str) -> None:
    call = Call("memory_insert", {"label": "human", "new_string": text})
    provider.enqueue(Reply(tool_calls=[call]), "Done.")
    answer = api.post(f"/v1/agents/{agent['id']}/messages", {"input": "x"})
    returned = next(
        m for m in answer.json()["messages"] if m["message_type"] == "tool_return_message"
    )
    assert returned["status"] == "success", returned
    assert text in provider.requests[-1].messages[0].content


def test_without_git_there_are_files_and_no_commits(
    api: Api, provider: Any, data_dir: Path
) -> None:
    agent = make_agent(api, memory={"git_enabled": False})
    assert agent["memory"]["git_enabled"] is False
    change(api, agent, "one")
    insert_by_turn(api, agent, provider, "two")
    assert value(api, agent) == "one\ntwo"
    assert (tree(data_dir, agent) / "system" / "human.md").read_text().endswith("one\ntwo")
    assert commits(data_dir, agent) == []
    api.patch(f"/v1/agents/{agent['id']}", {"memory": {"git_enabled": True}})
    assert value(api, agent) == "one\ntwo"
    change(api, agent, "three")
    assert len(commits(data_dir, agent)) >= 2
    shown = subprocess.run(
        ["git", "show", "HEAD~1:system/human.md"],
        cwd=tree(data_dir, agent),
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.endswith("one\ntwo"), "what was written without git is in the history now"


def test_without_auto_commit_writes_wait_in_the_work_tree(
    api: Api, provider: Any, data_dir: Path
) -> None:
    agent = make_agent(api, memory={"auto_commit": False})
    before = commits(data_dir, agent)
    change(api, agent, "one")
    insert_by_turn(api, agent, provider, "two")
    assert value(api, agent) == "one\ntwo"
    assert commits(data_dir, agent) == before
    api.patch(f"/v1/agents/{agent['id']}", {"memory": {"auto_commit": True}})
    change(api, agent, "three")
    assert len(commits(data_dir, agent)) >= len(before) + 2
    assert value(api, agent) == "three"
