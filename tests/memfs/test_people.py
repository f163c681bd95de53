"""People and git itself work in the same tree: nothing of theirs or ours is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memfs import MemoryRepository
from memfs.locking import remove_if_stale
from souveraine.errors import InvalidArgument, Unavailable
from tests.memfs.conftest import (
    AGENT,
    Git,
    assert_sound,
    clean_environment,
    push_from_clone,
    run_git,
)


def test_an_edit_is_committed_as_user_before_it_is_overwritten(memory: MemoryRepository) -> None:
    (memory.work_tree / "system/persona.md").write_text("edited by hand\n")
    memory.write("system/persona.md", "by the agent\n", AGENT)
    new, edit, _first = memory.log()
    assert (new.author_kind, edit.author_kind) == ("agent", "user")
    assert memory.read("system/persona.md", commit=edit.id) == "edited by hand\n"
    assert_sound(memory)


def test_append_goes_on_from_a_persons_edit(memory: MemoryRepository) -> None:
    (memory.work_tree / "archive/new.md").write_text("mine\n")
    memory.append("archive/new.md", "theirs\n", AGENT)
    assert memory.read("archive/new.md") == "mine\ntheirs\n"


def test_an_accidentally_removed_file_does_not_shorten_an_append(memory: MemoryRepository) -> None:
    (memory.work_tree / "system/persona.md").unlink()
    memory.append("system/persona.md", "more\n", AGENT)
    assert memory.read("system/persona.md") == "I am Ani.\nmore\n"
    assert_sound(memory)


def test_import_takes_new_changed_and_deleted_files(memory: MemoryRepository) -> None:
    tree = memory.work_tree
    (tree / "system/persona.md").write_text("changed")
    (tree / "system/human.md").unlink()
    (tree / "archive/deep").mkdir()
    (tree / "archive/deep/new.md").write_text("new")
    (tree / ".gitignore").write_text("*.tmp\n")
    (tree / "archive/x.tmp").write_text("ignored")
    commit = memory.import_worktree_changes()
    assert commit == memory.head()
    assert memory.log()[0].author_kind == "user"
    paths = [entry.path for entry in memory.list()]
    assert paths == [".gitignore", "archive/deep/new.md", "system/persona.md"]
    assert memory.import_worktree_changes() is None
    assert_sound(memory)


def test_a_lost_work_tree_is_restored_not_imported(memory: MemoryRepository) -> None:
    head = memory.head()
    for path in memory.work_tree.rglob("*"):
        if path.is_file() and path.name != ".git":
            path.unlink()
    assert memory.import_worktree_changes() is None
    assert (memory.work_tree / "system/persona.md").read_text() == "I am Ani.\n"
    subprocess.run(["rm", "-r", str(memory.work_tree)], check=True)
    assert memory.import_worktree_changes() is None
    assert memory.head() == head
    assert_sound(memory)


def test_a_persons_commit_is_kept(memory: MemoryRepository, git: Git) -> None:
    (memory.work_tree / "archive/note.md").write_text("hello\n")
    git("add", "-A")
    git("commit", "-q", "-m", "by hand")
    memory.write("archive/other.md", "x", AGENT)
    assert memory.read("archive/note.md") == "hello\n"
    assert [c.author_name for c in memory.log()][1] == "Alice"
    assert_sound(memory)


def test_add_and_commit_after_our_writes_reverts_nothing(
    memory: MemoryRepository, git: Git
) -> None:
    (memory.work_tree / "note.md").write_text("n\n")
    git("add", "note.md")
    memory.write("system/persona.md", "server one\n", AGENT)
    memory.write("archive/new.md", "server two\n", AGENT)
    git("commit", "-q", "-m", "note")
    assert git("show", "--stat", "--format=", "HEAD").split()[0] == "note.md"
    assert memory.read("system/persona.md") == "server one\n"
    assert memory.read("archive/new.md") == "server two\n"
    assert_sound(memory)


def test_a_push_reaches_the_work_tree(memory: MemoryRepository, tmp_path: Path) -> None:
    push_from_clone(memory, tmp_path, {"system/human.md": None, "archive/p.md": "pushed"})
    head = memory.head()
    assert memory.sync() == head
    assert (memory.work_tree / "archive/p.md").read_text() == "pushed"
    assert not (memory.work_tree / "system/human.md").exists()
    assert_sound(memory)


def test_a_push_is_merged_with_an_uncommitted_edit(
    memory: MemoryRepository, tmp_path: Path
) -> None:
    lines = [f"line {number}\n" for number in range(9)]
    memory.write("archive/a.md", "".join(lines), AGENT)
    pushed = ["pushed\n", *lines[1:]]
    push_from_clone(memory, tmp_path, {"archive/a.md": "".join(pushed)})
    (memory.work_tree / "archive/a.md").write_text("".join([*lines[:-1], "edited\n"]))
    memory.write("archive/b.md", "b", AGENT)
    assert memory.read("archive/a.md") == "".join([*pushed[:-1], "edited\n"])
    assert_sound(memory)


@pytest.mark.parametrize("edit", ["edited\n", None])
def test_a_push_wins_a_conflict_and_the_edit_stays_in_history(
    memory: MemoryRepository, tmp_path: Path, edit: str | None
) -> None:
    place = memory.work_tree / "system/persona.md"
    push_from_clone(memory, tmp_path, {"system/persona.md": "pushed\n"})
    place.unlink() if edit is None else place.write_text(edit)
    head = memory.sync()
    assert memory.read("system/persona.md") == "pushed\n"
    assert place.read_text() == "pushed\n"
    merge = memory.log(limit=1)[0]
    assert merge.id == head
    assert len(merge.parents) == 2
    if edit is not None:
        assert memory.read("system/persona.md", commit=merge.parents[1]) == edit
    assert_sound(memory)


def test_another_branch_is_left_to_the_person(memory: MemoryRepository, git: Git) -> None:
    git("checkout", "-q", "-b", "draft")
    (memory.work_tree / "system/persona.md").write_text("draft\n")
    git("commit", "-q", "-a", "-m", "draft")
    memory.write("system/persona.md", "on main\n", AGENT)
    assert (memory.work_tree / "system/persona.md").read_text() == "draft\n"
    assert memory.read("system/persona.md") == "on main\n"
    assert git("status", "--porcelain") == ""
    git("checkout", "-q", "main")
    memory.write("archive/a.md", "a", AGENT)
    assert memory.read("system/persona.md") == "on main\n"
    assert_sound(memory)


def test_a_persons_attributes_do_not_change_bytes(memory: MemoryRepository) -> None:
    (memory.work_tree / ".gitattributes").write_text("* text=auto eol=crlf\n")
    memory.write("archive/crlf.md", "a\r\nb\n", AGENT)
    assert (memory.work_tree / "archive/crlf.md").read_bytes() == b"a\r\nb\n"
    assert run_git(memory.work_tree, "status", "--porcelain") == "?? .gitattributes\n"


def test_modes_links_and_odd_names_of_a_push_survive(
    memory: MemoryRepository, tmp_path: Path
) -> None:
    run_git(tmp_path, "clone", "-q", str(memory.git_dir), "clone")
    clone = tmp_path / "clone"
    (clone / "run.sh").write_text("#!/bin/sh\n")
    (clone / "run.sh").chmod(0o755)
    (clone / "link").symlink_to("/etc/passwd")
    (clone / "ü\tx.md").write_text("odd")
    run_git(clone, "add", "-A")
    run_git(clone, "commit", "-q", "-m", "odd")
    run_git(clone, "push", "-q", "origin", "main")
    memory.sync()
    assert not (memory.work_tree / "link").is_symlink()
    assert "link" not in [entry.path for entry in memory.list()]
    assert not memory.exists("link")
    memory.write("run.sh", "#!/bin/sh\nexit 1\n", AGENT)
    assert os.access(memory.work_tree / "run.sh", os.X_OK)
    assert memory.import_worktree_changes() is None
    assert_sound(memory)


def test_nothing_is_written_or_read_through_a_link(
    memory: MemoryRepository, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    (memory.work_tree / "archive/out").symlink_to(outside)
    (memory.work_tree / "archive/file.md").symlink_to(outside / "secret.md")
    for path in ("archive/out/secret.md", "archive/out/new.md", "archive/file.md"):
        with pytest.raises(InvalidArgument, match=r"symbolic link|plain file"):
            memory.write(path, "overwritten", AGENT)
    assert memory.import_worktree_changes() is None
    assert [p.name for p in outside.iterdir()] == ["secret.md"]
    assert (outside / "secret.md").read_text() == "secret"


def test_a_link_in_place_of_a_folder_is_no_deletion(
    memory: MemoryRepository, tmp_path: Path
) -> None:
    (memory.work_tree / "system").rename(tmp_path / "system")
    (memory.work_tree / "system").symlink_to(tmp_path / "system")
    memory.import_worktree_changes()
    assert memory.exists("system/persona.md")


def test_a_bent_git_pointer_is_neither_followed_nor_kept(memory: MemoryRepository) -> None:
    pointer = memory.work_tree / ".git"
    pointer.unlink()
    pointer.symlink_to("/etc/passwd")
    memory.write("archive/a.md", "a", AGENT)
    memory.repair()
    assert pointer.read_text() == "gitdir: ../repository\n"
    assert_sound(memory)


def test_a_stale_index_lock_is_removed(memory: MemoryRepository) -> None:
    lock = memory.git_dir / "index.lock"
    lock.write_text("")
    os.utime(lock, (1, 1))
    memory.write("archive/a.md", "a", AGENT)
    assert not lock.exists()
    assert_sound(memory)


def test_our_own_leftover_lock_goes_at_once(memory: MemoryRepository) -> None:
    (memory.git_dir / "index.lock").write_bytes(b"souveraine")
    memory.write("archive/a.md", "a", AGENT)
    assert_sound(memory)


HOLDER = """
import sys, os
handle = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.utime(sys.argv[1], (1, 1))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_living_process_keeps_its_index_lock_and_we_still_write(memory: MemoryRepository) -> None:
    lock = memory.git_dir / "index.lock"
    command = [sys.executable, "-c", HOLDER, str(lock)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        memory.write("archive/a.md", "a", AGENT)
        memory.write("archive/b.md", "b", AGENT)
        assert lock.exists()
        assert memory.read("archive/a.md") == "a"
    # the holder is dead now: its lock is stale, and what the index missed is made up for
    memory.write("archive/c.md", "c", AGENT)
    memory.sync()
    assert not lock.exists()
    assert_sound(memory)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_git_that_waits_in_its_editor_keeps_its_lock(memory: MemoryRepository) -> None:
    (memory.work_tree / "system/persona.md").write_text("edited")
    environment = clean_environment() | {"GIT_EDITOR": "sh -c 'echo open >&2; read line; exit 1'"}
    lock = memory.git_dir / "index.lock"
    with subprocess.Popen(
        ["git", "commit", "-a"], cwd=memory.work_tree, env=environment, text=True,
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
    ) as waiting:  # fmt: skip
        assert waiting.stderr is not None
        while "open" not in (line := waiting.stderr.readline()):
            assert line
        os.utime(lock, (1, 1))
        assert not remove_if_stale(lock, (memory.git_dir, memory.work_tree))
    assert remove_if_stale(lock, (memory.git_dir, memory.work_tree))


def test_a_stale_branch_lock_is_removed(memory: MemoryRepository) -> None:
    lock = memory.git_dir / "refs/heads/main.lock"
    lock.write_text("")
    os.utime(lock, (1, 1))
    memory.write("archive/a.md", "a", AGENT)
    assert_sound(memory)


def test_a_held_branch_lock_is_reported(
    memory: MemoryRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfs.store.REF_LOCK_WAIT_SECONDS", 0.05)
    lock = memory.git_dir / "refs/heads/main.lock"
    lock.write_text("")  # fresh: it may belong to a git that we do not see yet
    with pytest.raises(Unavailable, match="branch cannot be moved"):
        memory.write("archive/a.md", "a", AGENT)
    lock.unlink()
    memory.write("archive/b.md", "b", AGENT)
    assert not memory.exists("archive/a.md")
    assert_sound(memory)


def test_a_branch_that_moves_under_a_write_is_taken_into_account(
    memory: MemoryRepository, git: Git
) -> None:
    moves = iter(("git moves the branch once",))

    def function(old: str | None) -> str:
        for _move in moves:
            git("commit", "--allow-empty", "-q", "-m", "in between")
        return (old or "") + "x"

    memory.transform("archive/a.md", function, AGENT)
    assert memory.read("archive/a.md") == "x"
    assert [c.message for c in memory.log()][:2] == ["Update archive/a.md", "in between"]
    assert_sound(memory)


@pytest.mark.parametrize("damage", ["garbage", "version 4", "split", "gone"])
def test_a_damaged_or_foreign_index_is_made_good(
    memory: MemoryRepository, git: Git, damage: str
) -> None:
    index = memory.git_dir / "index"
    if damage == "garbage":
        index.write_bytes(b"DIRC" + os.urandom(60))
    elif damage == "version 4":
        git("update-index", "--index-version", "4")
    elif damage == "split":
        git("update-index", "--split-index")
    else:
        index.unlink()
    memory.write("archive/a.md", "a", AGENT)
    assert memory.exists("system/persona.md")
    assert_sound(memory)


def test_repair_brings_back_files_and_keeps_edits(memory: MemoryRepository) -> None:
    (memory.work_tree / "system/human.md").unlink()
    (memory.work_tree / "system/persona.md").write_text("by hand")
    (memory.git_dir / "memfs/mirror").unlink()
    memory.repair()
    assert (memory.work_tree / "system/human.md").exists()
    assert memory.read("system/persona.md") == "by hand"
    assert memory.log()[0].author_kind == "user"
    assert_sound(memory)
