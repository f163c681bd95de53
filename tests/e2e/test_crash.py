"""kill -9 in the middle of a turn: the run goes on by itself, nothing is lost or said twice."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import Any

import httpx

from tests.e2e.conftest import Serve
from tests.e2e.test_python_sdk import script


def make_conversation(server: Serve) -> tuple[str, str]:
    agent = httpx.post(
        f"{server.url}/v1/agents/", json={"name": "crash", "model": "openai/double"}, timeout=30
    ).json()
    conversation = httpx.post(
        f"{server.url}/v1/conversations/?agent_id={agent['id']}", json={}, timeout=30
    ).json()
    return agent["id"], conversation["id"]


def listed(server: Serve, conversation_id: str) -> list[Any]:
    found = httpx.get(
        f"{server.url}/v1/conversations/{conversation_id}/messages?order=asc", timeout=30
    ).json()
    return [(m["message_type"], m.get("content") or m.get("tool_return") or "") for m in found[1:]]


class Stream(threading.Thread):
    """Reads a stream to its end, noting frames as they come."""

    def __init__(self, server: Serve, conversation_id: str, text: str) -> None:
        super().__init__(daemon=True)
        self.url, self.text = f"{server.url}/v1/conversations/{conversation_id}/messages", text
        self.frames: list[Any] = []

    def run(self) -> None:
        body = {"messages": [{"role": "user", "content": self.text}], "stream_tokens": True}
        with httpx.stream("POST", self.url, json=body, timeout=120) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.frames.append(line[6:] if line == "data: [DONE]" else json.loads(line[6:]))

    def wait_for(self, kind: str, count: int = 1) -> None:
        deadline = time.monotonic() + 60
        while sum(isinstance(f, dict) and f["message_type"] == kind for f in self.frames) < count:
            assert time.monotonic() < deadline, self.frames
            time.sleep(0.02)


def kill_worker(server: Serve) -> None:
    pids = server.pids("celery")
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def texts_after_retraction(frames: list[Any]) -> dict[str, str]:
    """What a client that honours `souveraine_retracted` shows at the end."""
    shown: dict[str, str] = {}
    for frame in frames:
        if frame == "[DONE]":
            continue
        if frame["message_type"] == "souveraine_retracted":
            shown.pop(frame["id"], None)
        elif frame["message_type"] == "assistant_message":
            shown[frame["id"]] = shown.get(frame["id"], "") + frame["content"]
    return shown


def test_killed_in_mid_stream(server: Serve) -> None:
    _, conversation = make_conversation(server)
    stream = Stream(server, conversation, script("count", words=30, delay_ms=100))
    stream.start()
    stream.wait_for("assistant_message", 5)
    kill_worker(server)
    stream.join(90)
    assert not stream.is_alive(), "the stream must end"
    whole = " ".join(f"w{i}" for i in range(30))
    assert stream.frames[-1] == "[DONE]"
    assert list(texts_after_retraction(stream.frames).values()) == [whole]
    seqs = [
        f["seq_id"]
        for f in stream.frames
        if isinstance(f, dict) and f.get("seq_id") and f["message_type"] != "ping"
    ]
    assert seqs == sorted(set(seqs))
    assert listed(server, conversation) == [
        ("user_message", script("count", words=30, delay_ms=100)),
        ("assistant_message", whole),
    ]
    after = Stream(server, conversation, script("next", text="It works."))
    after.start()
    after.join(60)
    assert listed(server, conversation)[-1] == ("assistant_message", "It works.")


def test_killed_after_a_tool_has_run(server: Serve) -> None:
    agent, conversation = make_conversation(server)
    tool = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "once"}}
    text = script("remember", tool=tool, words=20, delay_ms=100)
    stream = Stream(server, conversation, text)
    stream.start()
    stream.wait_for("tool_return_message")
    kill_worker(server)
    stream.join(90)
    assert stream.frames[-1] == "[DONE]"
    kinds = [kind for kind, _ in listed(server, conversation)]
    assert kinds == [
        "user_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    block = httpx.get(f"{server.url}/v1/agents/{agent}/core-memory/blocks/human", timeout=30).json()
    assert block["value"] == "once", "the tool ran once"


def test_an_idle_client_that_leaves_does_not_stop_the_turn(server: Serve) -> None:
    _, conversation = make_conversation(server)
    url = f"{server.url}/v1/conversations/{conversation}/messages"
    body = {
        "messages": [{"role": "user", "content": script("x", words=10, delay_ms=100)}],
        "stream_tokens": True,
    }
    with httpx.stream("POST", url, json=body, timeout=30) as response:
        next(response.iter_lines())
    deadline = time.monotonic() + 30
    while len(listed(server, conversation)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert listed(server, conversation)[-1][1] == " ".join(f"w{i}" for i in range(10))
