"""SIGKILL at every crash point of a turn, on both databases: nothing lost, nothing doubled, the next message works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from souveraine.lib.crash_points import POINTS
from souveraine.testing.crash.scenarios import CASES
from tests.e2e.conftest import ROOT

# Minutes more, so only when asked for: SOUVERAINE_TEST_POSTGRES=postgres://postgres@127.0.0.1:5432
POSTGRES = os.environ.get("SOUVERAINE_TEST_POSTGRES", "")


@cache
def reports(postgres: str | None) -> dict[str, dict[str, Any]]:
    """All cases are played at once; each test looks at its own. None is SQLite."""
    if postgres is not None:
        if not postgres:
            pytest.skip("SOUVERAINE_TEST_POSTGRES is not set")
        try:
            psycopg.connect(f"{postgres}/postgres", connect_timeout=3).close()
        except psycopg.OperationalError as exc:
            pytest.skip(f"no PostgreSQL at {postgres}: {str(exc).strip()}")
    command = [sys.executable, "-m", "souveraine.testing.crash", "--postgres", postgres or ""]
    out = subprocess.run(
        [*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert out.stdout, out.stderr[-4000:]
    return {report["case"]: report for report in json.loads(out.stdout)}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", [case.id for case in CASES])
@pytest.mark.parametrize(
    "postgres",
    [None, pytest.param(POSTGRES, marks=pytest.mark.postgres)],
    ids=["sqlite", "postgres"],
)
def test_killed_at(case: str, postgres: str | None) -> None:
    assert reports(postgres)[case]["problems"] == []


def test_the_code_reaches_exactly_the_points_that_are_named() -> None:
    sources = [p for app in ("conversations", "agents") for p in Path(ROOT, app).rglob("*.py")]
    found = [n for p in sources for n in re.findall(r'reached\("(\w+)"\)', p.read_text())]
    assert sorted(set(found)) == sorted(POINTS)
    assert {case.place for case in CASES} == set(POINTS), "a point that nothing is killed at"
