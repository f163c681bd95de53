"""The index codec against real git and against random changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfs import MemoryRepository
from memfs.index_file import GitIndex, Staged, UnreadableIndex
from tests.memfs.conftest import AGENT, Git, assert_sound, run_git

BLOB = bytes(range(20))
PATHS = st.text(st.sampled_from("ab/.-é"), min_size=1, max_size=8)


@given(st.lists(st.tuples(PATHS, st.booleans()), max_size=20))
def test_any_changes_leave_a_sorted_index_that_reads_back(changes: list[tuple[str, bool]]) -> None:
    index = GitIndex()
    expected: set[str] = set()
    for path, is_set in changes:
        if is_set:
            index.set(path, Staged(BLOB, 0o100644, None))
            expected.add(path)
        else:
            assert index.remove(path) is (path in expected)
            expected.discard(path)
    again = GitIndex.parse(index.dump())
    assert again.paths() == sorted(expected, key=lambda path: path.encode())
    assert again.dump() == index.dump()
    assert all(again.blob(path) == (BLOB, 0o100644) for path in expected)


def test_git_reads_what_we_write_and_we_read_what_git_writes(
    memory: MemoryRepository, git: Git
) -> None:
    for number in range(30):
        memory.write(f"archive/{'x' * number}.md", "x", AGENT)
    (memory.work_tree / "archive/y.md").write_text("y")
    git("add", "-N", "archive/y.md")  # intent to add: version 3 with wider entries
    memory.write("archive/z.md", "z", AGENT)
    listed = git("ls-files").splitlines()
    index = GitIndex.parse((memory.git_dir / "index").read_bytes())
    assert index.paths() == listed
    assert {"archive/y.md", "archive/z.md", "system/persona.md"} <= set(listed)
    (memory.work_tree / "archive/y.md").unlink()
    git("rm", "-q", "--cached", "archive/y.md")
    assert_sound(memory)


def test_git_trusts_our_file_times(memory: MemoryRepository, git: Git) -> None:
    memory.write("archive/a.md", "a", AGENT)
    assert git("diff-files", "--name-only") == ""


def test_a_conflict_a_person_left_is_read(memory: MemoryRepository, git: Git) -> None:
    git("checkout", "-q", "-b", "other")
    (memory.work_tree / "system/persona.md").write_text("theirs\n")
    git("commit", "-q", "-a", "-m", "theirs")
    git("checkout", "-q", "main")
    memory.write("system/persona.md", "ours\n", AGENT)
    git("merge", "other", check=False)
    assert "UU system/persona.md" in git("status", "--porcelain")
    memory.write("archive/a.md", "a", AGENT)
    assert "UU system/persona.md" in git("status", "--porcelain")
    git("merge", "--abort")
    assert memory.read("archive/a.md") == "a"
    assert_sound(memory)


@pytest.mark.parametrize("cut", [0, 3, 11, 40, 100, -1])
def test_a_cut_index_is_refused(memory: MemoryRepository, cut: int) -> None:
    data = (memory.git_dir / "index").read_bytes()
    with pytest.raises(UnreadableIndex):
        GitIndex.parse(data[:cut])


def test_a_commit_writes_only_the_folders_on_the_way(
    memory: MemoryRepository, tmp_path: Path
) -> None:
    files = {f"archive/d{n // 100}/f{n:04}.md": f"text {n}\n" for n in range(500)}
    memory.write_many(dict(files), AGENT, "Many")
    objects = int(run_git(memory.git_dir, "count-objects").split()[0])
    memory.write("archive/d3/f0305.md", "changed\n", AGENT)
    # one blob, three trees, one commit: nothing grows with the number of files
    assert int(run_git(memory.git_dir, "count-objects").split()[0]) == objects + 5
    assert_sound(memory)
