"""A process may die at any step of a commit; the next write makes good what it left."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from memfs import CommitMode, MemoryRepository
from memfs.store import Store
from tests.memfs.conftest import AGENT, assert_sound, push_from_clone


class Died(BaseException):
    """The process ends here, as far as the code under test can tell."""


def die(*_arguments: object, **_more: object) -> None:
    raise Died


@pytest.mark.parametrize("step", ["note", "files", "index", "branch"])
def test_a_crash_between_two_steps_is_not_taken_for_an_edit(
    memory: MemoryRepository, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    target = {
        "note": "memfs.mirror.Mirror.put",
        "files": "memfs.index_file.IndexFile.update",
        "index": "memfs.store.Store._move_branch",
        "branch": "memfs.mirror.Mirror.done",
    }[step]
    with monkeypatch.context() as patch:
        patch.setattr(target, die)
        with pytest.raises(Died):
            memory.write_many({"system/persona.md": "two", "archive/n.md": "new"}, AGENT, "Both")
    memory.write("archive/after.md", "x", AGENT)
    landed = step == "branch"
    assert memory.read("system/persona.md") == ("two" if landed else "I am Ani.\n")
    assert (memory.work_tree / "archive/n.md").exists() == landed
    assert {c.author_kind for c in memory.log()} == {"agent"}
    assert_sound(memory)


def test_store_leaves_unknown_notes_to_a_full_comparison(memory: MemoryRepository) -> None:
    store = Store(memory.root)
    store.mirror.begin(*(f"{number:040x}" for number in range(20)))
    assert store.mirror.shown() == ()
    memory.write("archive/a.md", "a", AGENT)
    assert_sound(memory)


@pytest.mark.parametrize("step", ["memfs.store.Store._move_branch", "memfs.mirror.Mirror.done"])
@pytest.mark.parametrize("how", ["write", "import", "merge", "pending"])
def test_a_crash_never_costs_a_person_an_edit(
    memory: MemoryRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    how: str,
) -> None:
    place = memory.work_tree / "system/persona.md"
    if how == "merge":
        push_from_clone(memory, tmp_path, {"system/persona.md": "pushed\n"})
    if how == "pending":
        waiting = MemoryRepository(memory.root, CommitMode.DEFERRED)
        waiting.write("system/persona.md", "edited\n", AGENT)
    else:
        place.write_text("edited\n")
    with monkeypatch.context() as patch:
        patch.setattr(step, die)
        call = memory.import_worktree_changes
        if how != "import":
            call = partial(memory.write, "system/persona.md", "agent\n", AGENT)
        with pytest.raises(Died):
            call()
    memory.write("system/persona.md", "after\n", AGENT)
    texts = [memory.read("system/persona.md", commit=c.id) for c in memory.log()]
    assert "edited\n" in texts
    assert texts[0] == "after\n"
    assert_sound(memory)


def test_old_copies_are_no_edits_when_the_note_is_lost(memory: MemoryRepository) -> None:
    memory.write("system/persona.md", "new\n", AGENT)
    (memory.work_tree / "system/persona.md").write_text("I am Ani.\n")
    (memory.git_dir / "memfs/mirror").unlink()
    memory.sync()
    assert memory.read("system/persona.md") == "new\n"
    assert_sound(memory)
