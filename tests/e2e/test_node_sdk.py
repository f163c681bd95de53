"""The main job with the unmodified TypeScript client, and the seed's snippet."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Serve

FOLDER = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def node_client() -> Path:
    if not (FOLDER / "node_modules" / "@letta-ai" / "letta-client").is_dir():
        pytest.skip("the npm client is not installed: make test installs it when npm is there")
    return FOLDER


pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
]


def seen_by(program: str, folder: Path, url: str) -> dict[str, Any]:
    """Run a program against the server; return the JSON that it prints."""
    ran = subprocess.run(
        ["node", program, url],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def test_main_job(server: Serve, node_client: Path) -> None:
    seen = seen_by("main_job.mjs", node_client, server.url)
    assert "node" in seen["names"]
    assert seen["sync"] == "Good morning"
    assert seen["streamed"] == ["w0", " w1", " w2", " w3", " w4"]
    assert seen["kinds"] == ["ping", "assistant_message", "stop_reason", "usage_statistics"]
    assert seen["inConversation"] == "Hello"
    assert seen["block"] == "Name: Carol"
    assert seen["rendered"] == "Hello from the double."
    assert len(seen["listed"]) == len(set(seen["listed"])) == 5
    assert seen["error"] == "llm_rate_limit"


def test_a_visit_to_each_resource(server: Serve, node_client: Path) -> None:
    seen = seen_by("tour.mjs", node_client, server.url)
    assert seen["failed"] == {}
    assert len(seen["done"]) > 90
