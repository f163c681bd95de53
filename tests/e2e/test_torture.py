"""A short form of `make torture`: kills at random moments lose, double and hold up nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.conftest import ROOT


@pytest.mark.timeout(600)
def test_twenty_turns_under_kills() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "souveraine.testing.torture", "--turns", "20", "--seed", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "turns 20 " in done.stdout
    assert "kills 0" not in done.stdout, "nothing was tried"
