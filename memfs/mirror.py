"""Keeping work tree and index equal to `main`, and knowing which commit they show.

The note `memfs/mirror` lists commit ids. One id: the files show that commit. Several: an update
was begun, each file shows one of them. So after a crash our own half-done work is never taken
for a person's edit. The caller holds the repository lock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

import pygit2

from memfs.index_file import IndexFile, Staged
from memfs.layout import Layout
from memfs.objects import Item, item_at
from memfs.paths import is_harmless
from memfs.worktree import Obstructed, WorkTree

logger = logging.getLogger(__name__)

SYNC_EACH_UP_TO = 32  # files; beyond it one sync of the file system costs less
MAX_NOTED = 12  # commits in the note; beyond it everything is compared anew
EXECUTABLE = 0o100755


class Mirror:
    """The work tree of one memory as a copy of its branch."""

    def __init__(self, layout: Layout) -> None:
        self._note = layout.private / "mirror"
        self._new_note = layout.private / "mirror.new"
        self.files = WorkTree(layout.work_tree, layout.private / "file.new")
        self.index = IndexFile(layout.git_dir, layout.work_tree)

    def shown(self) -> tuple[str, ...]:
        """Return the commits of which each file shows one; empty when nothing is known."""
        try:
            return tuple(self._note.read_text("ascii").split())
        except (FileNotFoundError, UnicodeDecodeError):
            return ()

    def begin(self, *commits: str) -> None:
        """Note, before files change, all commits whose state they may show from now on."""
        known = list(dict.fromkeys(commits))
        self._write_note(known if len(known) <= MAX_NOTED else [])

    def done(self, commit: str) -> None:
        """Note that files and index show `commit`."""
        self._write_note([commit])

    def _write_note(self, commits: list[str]) -> None:
        self._new_note.write_text(" ".join(commits), "ascii")
        os.replace(self._new_note, self._note)

    def put(self, repo: pygit2.Repository, paths: Iterable[str], tree: pygit2.Tree) -> bool:
        """Make files and index entries at `paths` equal to `tree`.

        False when git holds the index, so that the same paths must be put again later. A path
        where something else than a plain file stands is left alone, with a warning.
        """
        wanted = {path: item_at(tree, path) for path in sorted(paths) if is_harmless(path)}
        staged: dict[str, Staged | None] = {}
        for path, item in wanted.items():
            if item is None:
                self._remove(path)
                staged[path] = None
        present = {path: item for path, item in wanted.items() if item is not None}
        each = len(present) <= SYNC_EACH_UP_TO
        for path, item in present.items():
            self._write(repo, path, item, sync=each)
        if not each:
            os.sync()
        for path, item in present.items():
            staged[path] = Staged(item.blob.raw, item.mode, self.files.stat(path))
        return self.index.update(staged, tree)

    def _remove(self, path: str) -> None:
        try:
            self.files.remove(path)
        except Obstructed as obstacle:
            logger.warning("Left in the work tree: %s", obstacle)

    def _write(self, repo: pygit2.Repository, path: str, item: Item, *, sync: bool) -> None:
        found = repo.get(item.blob)
        data = found.data if isinstance(found, pygit2.Blob) else b""
        try:
            info = self.files.stat(path)
            is_executable = info is not None and bool(info.st_mode & 0o100)
            wanted = item.mode == EXECUTABLE
            if is_executable != wanted or self.files.read(path) != data:
                self.files.write(path, data, executable=wanted, sync=sync)
        except Obstructed as obstacle:
            logger.warning("Not written to the work tree: %s", obstacle)
