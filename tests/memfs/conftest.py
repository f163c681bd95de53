"""Memories in temporary folders, and real git with a clean configuration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from memfs import CommitMode, MemoryRepository, agent_author

AGENT = agent_author("agent-11111111-1111-4111-8111-111111111111")
FIRST_FILES = {"system/persona.md": "I am Ani.\n", "system/human.md": "Somebody.\n"}

Git = Callable[..., str]


def clean_environment() -> dict[str, str]:
    """Return an environment in which no configuration of the machine reaches git."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    person = {f"GIT_{role}_NAME": "Alice" for role in ("AUTHOR", "COMMITTER")}
    address = {f"GIT_{role}_EMAIL": "alice@example.org" for role in ("AUTHOR", "COMMITTER")}
    rest = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    return kept | person | address | rest


def run_git(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=clean_environment(), capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "agents" / "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def memory(root: Path) -> MemoryRepository:
    return MemoryRepository.create(root, FIRST_FILES, AGENT)


@pytest.fixture
def deferred(root: Path) -> MemoryRepository:
    return MemoryRepository.create(root, FIRST_FILES, AGENT, mode=CommitMode.DEFERRED)


@pytest.fixture
def git(memory: MemoryRepository) -> Git:
    """Run git as a person (Alice) in the work tree of `memory`."""
    return lambda *arguments, check=True: run_git(memory.work_tree, *arguments, check=check)


def assert_sound(memory: MemoryRepository) -> None:
    """Real git finds nothing broken and nothing to commit."""
    assert run_git(memory.work_tree, "fsck", "--strict", "--no-dangling") == ""
    assert run_git(memory.work_tree, "status", "--porcelain") == ""


def push_from_clone(memory: MemoryRepository, folder: Path, files: dict[str, str | None]) -> None:
    run_git(folder, "clone", "-q", str(memory.git_dir), "clone")
    for path, text in files.items():
        place = folder / "clone" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink() if text is None else place.write_text(text)
    run_git(folder / "clone", "add", "-A")
    run_git(folder / "clone", "commit", "-q", "-m", "from the clone")
    run_git(folder / "clone", "push", "-q", "origin", "main")
