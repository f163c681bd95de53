"""The main job with the unmodified Python SDK: create, talk, stream, remember, restart, read it all back."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, Letta

from tests.e2e.conftest import Serve


def script(prompt: str, /, **instructions: Any) -> str:
    return f"{prompt} ## {json.dumps(instructions)}"


def user(prompt: str, /, **instructions: Any) -> list[dict[str, Any]]:
    content = script(prompt, **instructions) if instructions else prompt
    return [{"role": "user", "content": content}]


@pytest.fixture
def client(server: Serve) -> Letta:
    return Letta(base_url=server.url, api_key="local-dev-key")


def git(server: Serve, agent_id: str, *arguments: str) -> str:
    folder = server.data_dir / "agents" / agent_id.removeprefix("agent-") / "memory.git"
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_main_job_survives_a_restart(server: Serve, client: Letta) -> None:
    agent = client.agents.create(
        name="Ani", model="openai/double", memory_blocks=[{"label": "human", "value": "Name: Bob"}]
    )
    assert "Ani" in [a.name for a in client.agents.list()]
    sync = client.agents.messages.create(agent.id, messages=user("hi", text="Good morning"))
    assert sync.messages[-1].content == "Good morning"
    assert sync.stop_reason.stop_reason == "end_turn"

    chunks = list(
        client.agents.messages.stream(agent.id, messages=user("count", words=8), stream_tokens=True)
    )
    texts = [c.content for c in chunks if c.message_type == "assistant_message"]
    assert len(texts) == 8
    assert "".join(texts) == "w0 w1 w2 w3 w4 w5 w6 w7"

    tool = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "Likes jam"}}
    kinds = [
        c.message_type
        for c in client.agents.messages.stream(agent.id, messages=user("jam", tool=tool))
    ]
    assert kinds == [
        "ping",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]

    conversation = client.conversations.create(agent_id=agent.id)
    list(
        client.conversations.messages.create(
            conversation.id, messages=user("in a conversation", text="Yes.")
        )
    )
    client.agents.blocks.update("persona", agent_id=agent.id, value="I am Ani.")
    before = [m.id for m in client.agents.messages.list(agent.id)]

    assert server.stop() == 0
    server.start()

    assert [m.id for m in client.agents.messages.list(agent.id)] == before
    listed = [m.message_type for m in client.conversations.messages.list(conversation.id)]
    assert listed == ["assistant_message", "user_message", "system_message"]
    assert client.agents.blocks.retrieve("human", agent_id=agent.id).value == "Name: Bob\nLikes jam"
    assert client.agents.blocks.retrieve("persona", agent_id=agent.id).value == "I am Ani."
    log = git(server, agent.id, "log", "--format=%s|%ae").splitlines()
    assert log[-1] == "Initial agent creation|agent@souveraine.ai"
    assert f"Update system/human.md|{agent.id}@souveraine.local" in log
    assert git(server, agent.id, "status", "--porcelain") == ""
    git(server, agent.id, "fsck", "--strict")
    again = client.agents.messages.create(agent.id, messages=user("still there?", text="Yes, Bob."))
    assert again.messages[-1].content == "Yes, Bob."


def test_paging_gives_each_message_once(client: Letta) -> None:
    agent = client.agents.create(name="pages", model="openai/double")
    conversation = client.conversations.create(agent_id=agent.id)
    for number in range(4):
        list(
            client.conversations.messages.create(
                conversation.id, messages=user(f"m{number}", text=f"a{number}")
            )
        )
    found = [m.id for m in client.conversations.messages.list(conversation.id, limit=2)]
    assert len(found) == len(set(found)) == 9


def test_a_provider_error_reaches_the_client_and_the_next_message_works(client: Letta) -> None:
    agent = client.agents.create(name="errors", model="openai/double")
    with pytest.raises(APIStatusError) as caught:
        list(client.agents.messages.stream(agent.id, messages=user("x", status=401)))
    assert "llm_authentication" in str(caught.value)
    after = client.agents.messages.create(agent.id, messages=user("y", text="fine"))
    assert after.messages[-1].content == "fine"


def test_the_kotlin_line_reader_gets_every_event(server: Serve, client: Letta) -> None:
    """LACE reads lines beginning with `data: ` and parses what follows (seed 004); `message` is a string."""
    agent = client.agents.create(name="lace", model="openai/double")
    conversation = client.conversations.create(agent_id=agent.id)
    seen = []
    url = f"{server.url}/v1/conversations/{conversation.id}/messages"
    with httpx.stream("POST", url, json={"message": "Hello"}) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                seen.append(line[6:])
    assert seen[-1] == "[DONE]"
    kinds = [json.loads(text)["message_type"] for text in seen[:-1]]
    assert kinds == ["ping", "assistant_message", "stop_reason", "usage_statistics"]


def test_commands_make_a_key_and_an_administrator(server: Serve, client: Letta) -> None:
    made = server.run("createkey", "laptop", "--scopes", "read")
    key = made.stdout.strip()
    assert key.startswith("sv-"), made.stderr
    headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "8.8.8.8"}
    assert httpx.get(f"{server.url}/v1/agents/", headers=headers).status_code == 200
    assert httpx.post(f"{server.url}/v1/agents/", headers=headers, json={}).status_code == 403
    assert (
        httpx.get(f"{server.url}/v1/agents/", headers={"X-Forwarded-For": "8.8.8.8"}).status_code
        == 401
    )
    admin = server.run("createadmin", "root", "--password-stdin", input="correct horse battery\n")
    assert admin.returncode == 0, admin.stderr
    with httpx.Client(base_url=server.url) as browser:
        page = browser.get("/admin/login/")
        assert page.status_code == 200
        token = browser.cookies["csrftoken"]
        form = {
            "username": "root",
            "password": "correct horse battery",
            "csrfmiddlewaretoken": token,
            "next": "/admin/",
        }
        assert browser.post("/admin/login/", data=form).status_code == 302
        for path in (
            "agents/agent",
            "agents/block",
            "agents/tool",
            "agents/apikey",
            "agents/user",
            "conversations/conversation",
            "conversations/message",
            "conversations/run",
            "conversations/step",
            "conversations/toolcall",
            "conversations/checkpoint",
        ):
            assert browser.get(f"/admin/{path}/").status_code == 200, path
        assert browser.get("/static/admin/css/base.css").status_code == 200


def test_runs_and_steps_of_an_async_send(client: Letta) -> None:
    agent = client.agents.create(
        name="later", model="openai/double", memory_blocks=[{"label": "human", "value": "Bob"}]
    )
    tool = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "Likes tea"}}
    started = client.agents.messages.create_async(agent.id, messages=user("tea", tool=tool))
    assert (started.status, started.background) == ("created", True)
    deadline = time.monotonic() + 30
    while (run := client.runs.retrieve(started.id)).status in ("created", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert run.stop_reason == "end_turn"
    listed = [r.id for r in client.runs.list(agent_id=agent.id, limit=1)]
    assert listed == [run.id]
    assert list(client.runs.list(active=True)) == []
    messages = [m.message_type for m in client.runs.messages.list(run.id, limit=1)]
    kinds = ["user_message", "tool_call_message", "tool_return_message", "assistant_message"]
    assert messages == kinds
    steps = list(client.runs.steps.list(run.id, limit=1))
    assert [s.id for s in client.steps.list(agent_id=agent.id, limit=1)] == [s.id for s in steps]
    assert len(steps) == 2
    usage = client.runs.usage.retrieve(run.id)
    assert usage.total_tokens == sum(s.total_tokens or 0 for s in steps)
    first = steps[-1].id
    assert client.steps.retrieve(first).run_id == run.id
    assert (client.steps.metrics.retrieve(first).tool_execution_ns or 0) > 0
    assert len(list(client.steps.messages.list(first, limit=2))) == 3
    rated = client.steps.feedback.create(first, feedback="positive", tags=["good"])
    assert (rated.feedback, rated.tags) == ("positive", ["good"])
    assert [s.id for s in client.steps.list(feedback="positive", agent_id=agent.id)] == [first]
    with pytest.raises(APIStatusError, match="public"):
        client.agents.messages.create_async(
            agent.id, messages=user("x"), callback_url="http://127.0.0.1:9/hook"
        )


def test_compact_and_recompile(server: Serve, client: Letta) -> None:
    agent = client.agents.create(
        model="openai/double", memory_blocks=[{"label": "human", "value": "Name: Bob"}]
    )
    with pytest.raises(APIStatusError) as nothing:
        client.agents.messages.compact(agent.id)
    assert nothing.value.status_code == 400
    for number in range(3):
        client.agents.messages.create(agent.id, messages=user("hi", text=f"answer {number}"))
    done = client.agents.messages.compact(agent.id, compaction_settings={"mode": "all"})
    assert (done.num_messages_before, done.num_messages_after) == (7, 2)
    assert done.summary
    client.agents.messages.create(agent.id, messages=user("hi", text="and on"))
    done = client.conversations.messages.compact("default", agent_id=agent.id)
    assert done.num_messages_before == 4
    kinds = [m.message_type for m in client.agents.messages.list(agent.id)]
    assert kinds.count("summary_message") == 2
    client.agents.blocks.update("human", agent_id=agent.id, value="Name: Eve")
    assert "Name: Eve" in client.agents.recompile(agent.id)
    assert "Name: Eve" in client.conversations.recompile("default", agent_id=agent.id)
