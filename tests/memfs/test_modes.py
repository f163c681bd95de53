from __future__ import annotations

from pathlib import Path

import pytest

from memfs import API_AUTHOR, CommitMode, MemoryRepository, user_author
from souveraine.errors import InvalidArgument, NotFound
from tests.memfs.conftest import AGENT, FIRST_FILES, assert_sound, run_git


def test_deferred_writes_are_read_and_wait_for_a_commit(deferred: MemoryRepository) -> None:
    head = deferred.head()
    assert deferred.write("system/persona.md", "two", AGENT) == head
    deferred.append("archive/a.md", "x", API_AUTHOR)
    deferred.delete("system/human.md", API_AUTHOR)
    assert deferred.head() == head
    assert deferred.read("system/persona.md") == "two"
    assert [e.path for e in deferred.list()] == ["archive/a.md", "system/persona.md"]
    with pytest.raises(NotFound):
        deferred.read("system/human.md")
    commit = deferred.commit_pending()
    assert commit == deferred.head() != head
    log = deferred.log()
    assert [(c.author_kind, c.message.split("\n")[0]) for c in log] == [
        ("api", "Update 2 files"),
        ("agent", "Update system/persona.md"),
        ("agent", "Initial agent creation"),
    ]
    assert deferred.commit_pending() is None
    assert_sound(deferred)


def test_deferred_file_changed_by_a_person_is_theirs(deferred: MemoryRepository) -> None:
    deferred.write("archive/a.md", "agent", AGENT)
    (deferred.work_tree / "archive/a.md").write_text("person")
    deferred.commit_pending("Evening")
    assert deferred.log()[0].author_kind == "user"
    assert deferred.log()[0].message == "Evening"


def test_deferred_reads_show_a_push(deferred: MemoryRepository, tmp_path: Path) -> None:
    deferred.write("archive/mine.md", "waiting", AGENT)
    MemoryRepository(deferred.root)  # another mode of the same memory does nothing by itself
    run_git(tmp_path, "clone", "-q", str(deferred.git_dir), "clone")
    (tmp_path / "clone/system/persona.md").write_text("pushed")
    run_git(tmp_path / "clone", "commit", "-q", "-a", "-m", "p")
    run_git(tmp_path / "clone", "push", "-q", "origin", "main")
    assert deferred.read("system/persona.md") == "pushed"
    assert deferred.read("archive/mine.md") == "waiting"
    assert deferred.commit_pending() is not None
    assert_sound(deferred)


def test_from_deferred_to_commit_takes_up_what_waits(deferred: MemoryRepository) -> None:
    deferred.write("archive/a.md", "waiting", API_AUTHOR)
    memory = MemoryRepository(deferred.root)
    assert memory.read("archive/a.md") == "waiting"
    assert memory.log()[0].author_kind == "api"
    memory.write("archive/a.md", "next", AGENT)
    assert_sound(memory)


def test_files_mode_never_commits_and_has_the_folders(root: Path) -> None:
    files = MemoryRepository.create(root, FIRST_FILES, AGENT, mode=CommitMode.FILES)
    assert (files.work_tree / "journal").is_dir()
    assert files.write("archive/a.md", "x", AGENT) is None
    assert files.append("archive/a.md", "y", AGENT) is None
    assert files.read("archive/a.md") == "xy"
    assert files.head() is None
    assert files.log() == []
    assert files.commit_pending() is files.import_worktree_changes() is files.sync() is None
    assert files.repair() is None
    MemoryRepository.create(root, {"archive/a.md": "other"}, AGENT, mode=CommitMode.FILES)
    assert files.read("archive/a.md") == "xy"


def test_from_files_to_commit_takes_everything_up(root: Path) -> None:
    files = MemoryRepository.create(root, FIRST_FILES, AGENT, mode=CommitMode.FILES)
    files.write("archive/a.md", "x", AGENT)
    memory = MemoryRepository(root)
    assert memory.read("archive/a.md") == "x"
    assert [(c.author_kind, c.message) for c in memory.log()] == [
        ("system", "Take up files written without git")
    ]
    assert_sound(memory)


def test_commit_to_files_and_back_loses_nothing(memory: MemoryRepository) -> None:
    files = MemoryRepository(memory.root, CommitMode.FILES)
    files.write("system/persona.md", "without git", AGENT)
    files.delete("system/human.md", AGENT)
    assert len(files.log()) == 1
    assert memory.read("system/persona.md") == "without git"
    assert not memory.exists("system/human.md")
    assert len(memory.log()) == 2
    assert_sound(memory)


def test_version_notices_a_persons_edit(deferred: MemoryRepository) -> None:
    before = deferred.version("system/")
    (deferred.work_tree / "archive/a.md").write_text("elsewhere")
    assert deferred.version("system/") == before
    (deferred.work_tree / "system/persona.md").write_text("edited!")
    assert deferred.version("system/") != before


def test_version_is_head_when_each_write_commits(memory: MemoryRepository) -> None:
    assert memory.version("system/") == memory.head()


def test_deferred_refuses_links(deferred: MemoryRepository, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (deferred.work_tree / "archive/l.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        deferred.read("archive/l.md")
    with pytest.raises(InvalidArgument, match="cannot be"):
        deferred.write("archive/l.md", "x", AGENT)
    assert deferred.list("archive/") == []


def test_a_damaged_note_means_everything_is_looked_at(deferred: MemoryRepository) -> None:
    deferred.write("archive/a.md", "x", user_author("Bob"))
    (deferred.git_dir / "memfs/pending.json").write_text("{")
    deferred.commit_pending()
    assert deferred.log()[0].author_kind == "system"
    assert_sound(deferred)
