"""letta-client 1.7.12: `tools.upsert_from_function` and `BaseTool`, as much existing code has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Serve

INSTALLED = Path(sys.prefix) / "old-sdk"


@pytest.mark.skipif(
    not (INSTALLED / "letta_client").is_dir(),
    reason="letta-client 1.7.12 is not installed: make test-e2e does it",
)
def test_tools_of_functions_and_classes(server: Serve) -> None:
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "old_sdk" / "tools_job.py"), server.url],
        env={**os.environ, "PYTHONPATH": str(INSTALLED)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["version"] == "1.7.12"
    assert seen["is_same"]
    assert seen["tags"] == ["old", "again"]
    assert seen["schema"]["parameters"]["properties"]["a"]["type"] == "integer"
    assert set(seen["schema"]["parameters"]["required"]) == {"a", "b"}
    assert set(seen["wish"]["parameters"]["properties"]) >= {"name", "count"}
    assert sorted(seen["attached"]) == ["add_two_numbers", "greet"]
    assert seen["said"] == ["Hello from before."]
    assert seen["found"] == ["add_two_numbers"]
