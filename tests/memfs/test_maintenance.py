from __future__ import annotations

from pathlib import Path

import pytest

from memfs import MemoryRepository, pack
from tests.memfs.conftest import AGENT, assert_sound


def test_a_packed_memory_is_read_and_written_as_before(memory: MemoryRepository) -> None:
    head = memory.write("archive/a.md", "a", AGENT)
    assert pack(memory.git_dir, force=True)
    assert not (memory.git_dir / "refs/heads/main").exists()
    assert list((memory.git_dir / "objects/pack").glob("*.pack"))
    assert memory.head() == head
    assert memory.read("archive/a.md") == "a"
    memory.append("archive/a.md", "b", AGENT)
    assert memory.read("archive/a.md") == "ab"
    assert len(memory.log()) == 3
    assert_sound(memory)


def test_packing_waits_until_there_is_much_to_pack(memory: MemoryRepository) -> None:
    assert pack(memory.git_dir)
    assert not list((memory.git_dir / "objects/pack").glob("*.pack"))


def test_a_failed_or_impossible_packing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not pack(tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not pack(tmp_path)
