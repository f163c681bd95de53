"""Letta Code 0.25.9 headless: it prints its result, for a new agent and for an existing one.

Its exit code is 0 even when a start-up call fails, so the output is what counts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

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
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "LETTA_BASE_URL": server.url,
        "DISABLE_AUTOUPDATER": "1",
    }

    def run(*arguments: str) -> dict[str, Any]:
        ran = subprocess.run(
            ["node", str(PROGRAM), *arguments, "--output-format", "json"],
            cwd=tmp_path / "work",
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.stdout.strip(), ran.stderr
        return json.loads(ran.stdout)  # type: ignore[no-any-return]

    return run


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
