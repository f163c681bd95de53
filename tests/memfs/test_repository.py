from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memfs import API_AUTHOR, SYSTEM_AUTHOR, MemoryRepository, agent_author, user_author
from souveraine.errors import InvalidArgument, NotFound, PayloadTooLarge
from tests.memfs.conftest import AGENT, FIRST_FILES, Git, assert_sound, run_git


def test_it_works(memory: MemoryRepository, git: Git) -> None:
    assert memory.read("system/persona.md") == "I am Ani.\n"
    commit = memory.write("system/persona.md", "I am Ani, still.\n", AGENT)
    assert memory.head() == commit
    assert git("show", "HEAD:system/persona.md") == "I am Ani, still.\n"
    assert (memory.work_tree / "system/persona.md").read_text() == "I am Ani, still.\n"
    assert_sound(memory)


def test_creation_makes_all_folders_and_one_commit(memory: MemoryRepository, git: Git) -> None:
    assert git("log", "--format=%an <%ae>|%cn <%ce>|%s") == (
        f"{AGENT.name} <{AGENT.name}@souveraine.local>"
        "|Souveraine <agent@souveraine.ai>|Initial agent creation\n"
    )
    assert git("branch", "--show-current") == "main\n"
    for folder in ("system", "subconscious", "journal", "skills", "archive"):
        assert (memory.work_tree / folder).is_dir()
        assert git("ls-tree", "--name-only", "HEAD", folder) == f"{folder}\n"
    assert [entry.path for entry in memory.list()] == ["system/human.md", "system/persona.md"]
    assert_sound(memory)


def test_creation_twice_keeps_what_is_there(memory: MemoryRepository, root: Path) -> None:
    head = memory.write("system/persona.md", "changed", AGENT)
    again = MemoryRepository.create(root, FIRST_FILES, AGENT)
    assert again.head() == head
    assert again.read("system/persona.md") == "changed"


@pytest.mark.parametrize("survivor", ["folders", "no branch", "no config", "files only"])
def test_creation_that_died_is_completed(root: Path, survivor: str) -> None:
    memory = MemoryRepository.create(root, FIRST_FILES, AGENT)
    (memory.git_dir / "refs/heads/main").unlink()
    if survivor == "folders":
        for path in (memory.git_dir / "HEAD", memory.git_dir / "index", memory.work_tree / ".git"):
            path.unlink()
    elif survivor == "no config":
        (memory.git_dir / "config").unlink()
    elif survivor == "files only":
        (memory.git_dir / "memfs/mirror").unlink()
        (memory.git_dir / "index").unlink()
    again = MemoryRepository.create(root, FIRST_FILES, AGENT)
    again.write("archive/a.md", "a", AGENT)
    assert again.read("system/human.md") == FIRST_FILES["system/human.md"]
    assert [c.message for c in again.log()] == ["Update archive/a.md", "Initial agent creation"]
    assert_sound(again)


def test_the_tree_can_be_moved(memory: MemoryRepository, root: Path, tmp_path: Path) -> None:
    moved = root.rename(tmp_path / "elsewhere")
    there = MemoryRepository(moved)
    there.write("archive/a.md", "a", AGENT)
    assert_sound(there)
    pointer = moved / "memory.git/.git"
    assert pointer.is_file()
    assert pointer.read_text() == "gitdir: ../repository\n"


def test_same_content_makes_no_commit(memory: MemoryRepository) -> None:
    head = memory.head()
    assert memory.write("system/persona.md", "I am Ani.\n", AGENT) == head
    assert memory.write_many({"absent.md": None}, AGENT, "nothing") == head


def test_write_many_deletes_and_lands_in_one_commit(memory: MemoryRepository) -> None:
    memory.write_many({"archive/x/y/z.md": "deep", "system/human.md": None}, AGENT, "Tidy up")
    assert not memory.exists("system/human.md")
    assert not (memory.work_tree / "system/human.md").exists()
    assert len(memory.log()) == 2
    memory.delete("archive/x/y/z.md", AGENT)
    assert not (memory.work_tree / "archive/x").exists()
    assert (memory.work_tree / "archive").is_dir()
    assert_sound(memory)


def test_delete_of_nothing_is_not_found(memory: MemoryRepository) -> None:
    with pytest.raises(NotFound, match=r"no file archive/none\.md"):
        memory.delete("archive/none.md", AGENT)


@pytest.mark.parametrize("text", ["", "no newline", "a\r\nb\r", "\ufeff bom", "\0 nul", "😀\u2028"])
def test_text_comes_back_to_the_byte(memory: MemoryRepository, text: str) -> None:
    memory.write("archive/t.md", text, AGENT)
    assert memory.read("archive/t.md") == text
    assert (memory.work_tree / "archive/t.md").read_bytes() == text.encode()
    assert_sound(memory)


def test_file_and_folder_cannot_share_a_name(memory: MemoryRepository) -> None:
    with pytest.raises(InvalidArgument, match="is a folder"):
        memory.write("system", "text", AGENT)
    with pytest.raises(InvalidArgument, match=r"folder is needed|is a file"):
        memory.write("system/persona.md/x.md", "text", AGENT)
    with pytest.raises(InvalidArgument, match="is a folder"):
        memory.write_many({"archive": None}, AGENT, "x")
    assert len(memory.log()) == 1


def test_a_folder_may_become_a_file_in_one_commit(memory: MemoryRepository) -> None:
    memory.write("a/b.md", "x", AGENT)
    memory.write_many({"a/b.md": None}, AGENT, "Remove a")
    memory.write("a", "now a file", AGENT)
    assert memory.read("a") == "now a file"
    assert_sound(memory)


def test_too_large_and_not_unicode_are_refused(
    memory: MemoryRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgument, match="not valid Unicode"):
        memory.write("a.md", "\ud800", AGENT)
    monkeypatch.setattr("memfs.reading.MAX_FILE_BYTES", 10)
    with pytest.raises(PayloadTooLarge, match="11 bytes"):
        memory.write("a.md", "x" * 11, AGENT)


def test_transform_sees_the_text_and_may_delete(memory: MemoryRepository) -> None:
    memory.transform("archive/n.md", lambda old: "1" if old is None else old + "1", AGENT)
    memory.transform("archive/n.md", lambda old: (old or "") + "2", AGENT)
    assert memory.read("archive/n.md") == "12"
    memory.transform("archive/n.md", lambda _old: None, AGENT)
    assert not memory.exists("archive/n.md")

    def fail(_old: str | None) -> str:
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument, match=r"^no$"):
        memory.transform("archive/n.md", fail, AGENT)


def test_append_to_bytes_that_are_no_text_is_refused(memory: MemoryRepository, git: Git) -> None:
    (memory.work_tree / "archive/bin.md").write_bytes(b"\xff\xfe")
    memory.import_worktree_changes()
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        memory.append("archive/bin.md", "x", AGENT)
    assert memory.read_bytes("archive/bin.md") == b"\xff\xfe"


def test_journal_entries_have_day_files_and_times(memory: MemoryRepository) -> None:
    at = datetime(2026, 5, 6, 23, 30, 0, tzinfo=UTC)
    memory.append_journal("Slept well.", agent_author("agent-1", "sub"), at)
    memory.append_journal("Woke.", agent_author("agent-1", "reflect"), at.replace(minute=31))
    assert memory.read("journal/2026-05-06.md") == (
        "\n## 2026-05-06T23:30:00+00:00\nSlept well.\n\n## 2026-05-06T23:31:00+00:00\nWoke.\n"
    )
    assert [c.author_kind for c in memory.log("journal/2026-05-06.md")] == ["reflect", "sub"]


def test_log_pages_and_filters(memory: MemoryRepository) -> None:
    for number in range(5):
        memory.write("archive/a.md", str(number), AGENT)
        memory.write("archive/b.md", str(number), API_AUTHOR)
    everything = memory.log()
    assert len(everything) == 11
    assert everything[0].parents == (everything[1].id,)
    assert everything[-1].parents == ()
    assert everything[0].at.tzinfo is UTC
    paged = memory.log(limit=4) + memory.log(limit=40, before=everything[3].id)
    assert paged == everything
    mine = memory.log("archive/b.md", limit=3)
    assert [c.author_kind for c in mine] == ["api"] * 3
    assert len(memory.log("archive/")) == 11  # the first made the folder
    assert memory.log("nothing/here") == []
    with pytest.raises(NotFound, match="no commit"):
        memory.log(before="f" * 40)


def test_read_at_commit_and_diff(memory: MemoryRepository) -> None:
    first = memory.head()
    second = memory.write("system/persona.md", "I am Ani.\nAnd more.\n", AGENT)
    assert first is not None
    assert second is not None
    assert memory.read("system/persona.md", commit=first) == "I am Ani.\n"
    assert memory.read("system/persona.md", commit=second[:8]) == "I am Ani.\nAnd more.\n"
    assert "+And more." in memory.diff(second)
    assert "+I am Ani." in memory.diff(first)
    for wrong in ("f" * 40, "main", "", "../../x"):
        with pytest.raises(NotFound):
            memory.read("system/persona.md", commit=wrong)


def test_list_tells_size_and_blob_and_takes_a_prefix(memory: MemoryRepository, git: Git) -> None:
    memory.write_many({"skills/a/SKILL.md": "x", "skills/ab.md": "yy"}, AGENT, "Skills")
    found = memory.list("skills/a")
    assert [(e.path, e.size_bytes) for e in found] == [
        ("skills/a/SKILL.md", 1),
        ("skills/ab.md", 2),
    ]
    assert found[0].blob_id == git("rev-parse", "HEAD:skills/a/SKILL.md").strip()
    assert [e.path for e in memory.list("skills/a/")] == ["skills/a/SKILL.md"]
    assert memory.list("none/") == []


def test_authors_are_told_apart(memory: MemoryRepository, git: Git) -> None:
    people = [AGENT, API_AUTHOR, SYSTEM_AUTHOR, user_author("Zoë <x>\n"), user_author("...")]
    people += [agent_author("agent-1", cadence) for cadence in ("sub", "reflect", "archive")]
    for number, author in enumerate(people):
        memory.write("archive/a.md", str(number), author)
    git("commit", "--allow-empty", "-m", "by hand")
    kinds = ["user", "archive", "reflect", "sub", "user", "user", "system", "api", "agent", "agent"]
    assert [c.author_kind for c in memory.log()] == kinds


def test_missing_memory_is_not_found(tmp_path: Path) -> None:
    nowhere = MemoryRepository(tmp_path / "none")
    assert nowhere.head() is None
    for call in (lambda: nowhere.read("a.md"), lambda: nowhere.write("a.md", "x", AGENT)):
        with pytest.raises(NotFound, match="no memory repository"):
            call()
    assert not (tmp_path / "none").exists()


def test_git_configuration_lets_nothing_run(memory: MemoryRepository, git: Git) -> None:
    assert git("config", "core.hooksPath") == "/dev/null\n"
    for key, value in {
        "receive.fsckObjects": "true",
        "receive.denyNonFastForwards": "true",
        "receive.denyDeletes": "true",
        "receive.denyCurrentBranch": "ignore",
    }.items():
        assert git("config", key) == f"{value}\n"
    hook = memory.git_dir / "hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {memory.root}/ran\n")
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    git("commit", "--allow-empty", "-m", "x")
    assert not (memory.root / "ran").exists()


def test_a_clone_has_the_folders(memory: MemoryRepository, tmp_path: Path) -> None:
    run_git(tmp_path, "clone", "-q", str(memory.git_dir), "copy")
    assert (tmp_path / "copy/journal").is_dir()
