"""Letta Code 0.25.9 headless: it prints its result, for a new agent and for an existing one.

Its exit code is 0 even when a start-up call fails, so the output is what counts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import wait_for
from tests.e2e.conftest import Serve
from tests.e2e.test_python_sdk import script

PROGRAM = Path(__file__).parent / "node" / "node_modules" / "@letta-ai" / "letta-code" / "letta.js"

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
    pytest.mark.skipif(
        not PROGRAM.is_file(), reason="Letta Code is not installed: make test does it with npm"
    ),
]


@pytest.fixture
def letta(server: Serve, tmp_path: Path) -> Any:
    subprocess.run(["git", "init", "-q", "work"], cwd=tmp_path, check=True)
    (tmp_path / "home").mkdir()

    def run(*arguments: str) -> dict[str, Any]:
        process = started(server, tmp_path, *arguments)
        stdout, stderr = process.communicate(timeout=120)
        assert stdout.strip(), stderr
        return json.loads(stdout)  # type: ignore[no-any-return]

    return run


def started(server: Serve, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "LETTA_BASE_URL": server.url,
        "DISABLE_AUTOUPDATER": "1",
    }
    return subprocess.Popen(
        ["node", str(PROGRAM), *arguments, "--output-format", "json"],
        cwd=folder / "work",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_new_agent_then_the_same_one(letta: Any, server: Serve) -> None:
    first = letta(
        "-p", script("hi", text="Hello there, friend."), "--new-agent", "--model", "openai/double"
    )
    assert (first["subtype"], first["is_error"], first["result"]) == (
        "success",
        False,
        "Hello there, friend.",
    )
    again = letta("-p", script("again", text="Still here."), "--agent", first["agent_id"])
    assert (again["result"], again["agent_id"]) == ("Still here.", first["agent_id"])
    default = letta(
        "-p",
        script("d", text="By default."),
        "--agent",
        first["agent_id"],
        "--conversation",
        "default",
    )
    assert (default["result"], default["conversation_id"]) == ("By default.", "default")


def test_no_model_is_named(letta: Any) -> None:
    """The program asks for the hosted service's choice then, `letta/auto`."""
    first = letta("-p", script("hi", text="Hello."), "--new-agent")
    assert (first["subtype"], first["result"]) == ("success", "Hello.")


def bash(command: str) -> dict[str, Any]:
    arguments = {"command": command, "description": "a test's command"}
    return {"name": "Bash", "arguments": arguments}


def test_tool_turns_with_bash_on_the_clients_machine(
    letta: Any, server: Serve, tmp_path: Path
) -> None:
    """The program runs the tools itself: one call, two in parallel, and again after a restart of both."""
    one = letta(
        "-p",
        script("run", tool=bash("echo one > one.txt"), text="Ran it."),
        "--new-agent",
        "--model",
        "bifrost/double",  # for openai/… the program brings other tools than Bash
        "--yolo",
    )
    assert (one["subtype"], one["result"]) == ("success", "Ran it.")
    assert (tmp_path / "work" / "one.txt").read_text() == "one\n"
    calls = [bash("echo two > two.txt"), bash("echo three > three.txt")]
    prompt = script("run", tools=calls, text="Both ran.")
    both = letta("-p", prompt, "--agent", one["agent_id"], "--yolo")
    assert (both["subtype"], both["result"]) == ("success", "Both ran.")
    assert (tmp_path / "work" / "three.txt").read_text() == "three\n"
    assert (tmp_path / "work" / "two.txt").read_text() == "two\n"


@pytest.mark.parametrize("conversation", ["default", "its own"])
def test_the_program_killed_while_its_tool_runs_goes_on_in_the_next_start(
    letta: Any, server: Serve, tmp_path: Path, conversation: str
) -> None:
    """Its call is still pending then: the conversation is not stuck, and the agent hears what became of it."""
    first = letta(
        "-p", script("hi", text="Hello."), "--new-agent", "--model", "bifrost/double", "--yolo"
    )
    agent = first["agent_id"]
    prompt = script("run", tool=bash("touch began; sleep 60"), text="Ran it.")
    place = ["--agent", agent, "--conversation", "default"]
    if conversation != "default":
        place = ["--conversation", first["conversation_id"]]
    options = (*place, "--yolo")
    process = started(server, tmp_path, "-p", prompt, *options)
    wait_for((tmp_path / "work" / "began").is_file, 60)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    found = httpx.get(f"{server.url}/v1/agents/{agent}/approvals").json()["pending"]
    assert len(found) == 1
    again = letta("-p", script("again", text="Still here."), *options)
    assert (again["subtype"], again["result"]) == ("success", "Still here.")
    assert httpx.get(f"{server.url}/v1/agents/{agent}/approvals").json()["pending"] == []
