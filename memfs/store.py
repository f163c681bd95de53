"""Landing changes on `main` and settling work tree, index and branch with each other.

The order of one commit: objects, note, files, index, branch, note. Index before branch, because
a person's `git commit` that reads the new branch and the old index would revert us. All
functions run with the repository lock held; only git itself (a person, a push) moves the
branch beside us, which shows as LostRace.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pygit2
from pygit2.enums import FileMode, FileStatus, MergeFavor, SortMode

from memfs.authors import SYSTEM_AUTHOR, Author, user_author
from memfs.index_file import UnreadableIndex
from memfs.layout import Layout
from memfs.locking import RepositoryLock, remove_if_stale
from memfs.mirror import Mirror
from memfs.objects import (
    BRANCH,
    Draft,
    Item,
    build_tree,
    changed_paths,
    files_in,
    item_at,
    open_repository,
    tip_of,
    tree_of,
)
from memfs.paths import is_allowed
from memfs.pending import Pending
from memfs.worktree import Obstructed
from souveraine.errors import InvalidArgument, Unavailable

logger = logging.getLogger(__name__)

USER = user_author("user")
REF_LOCK_WAIT_SECONDS = 3.0  # git holds a branch's lock for milliseconds
LOOK_BACK = 2000  # commits searched for an old copy of a file; about 50 ms


class LostRace(Exception):
    """The branch moved while we worked; start again from its new tip."""


class Store:
    """The parts of one memory and the operations that keep them in step."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.mirror = Mirror(self.layout)
        self.pending = Pending(self.layout)
        self._places = (self.layout.git_dir, self.layout.work_tree)

    def lock(self) -> RepositoryLock:
        return RepositoryLock(self.layout.lock)

    # -- changes -----------------------------------------------------------------------------

    def commit(
        self,
        repo: pygit2.Repository,
        tip: pygit2.Oid | None,
        changes: Mapping[str, Item | None],
        author: Author,
        message: str,
        *,
        from_files: bool = False,
    ) -> pygit2.Oid | None:
        """Land `changes` on `tip`; without a difference the tip is returned. Raises LostRace.

        `from_files` says that the work tree holds them already and is their only copy: it is
        not noted as ours before the commit has landed, so that no crash rolls it back.
        """
        base = tree_of(repo, tip)
        tree = build_tree(repo, base, changes)
        if (base is not None and tree == base.id) or (base is None and not changes):
            return tip
        draft = Draft.now(author, message, tree, () if tip is None else (tip,))
        commit = draft.store(repo)
        clean = False
        if self.layout.shows_main():
            shown = self.mirror.shown()
            if not from_files:
                self.mirror.begin(*shown, str(commit))
            clean = self.mirror.put(repo, changes, repo[tree].peel(pygit2.Tree))
            # an earlier update may have left paths behind while git held the index
            clean = clean and shown == (() if tip is None else (str(tip),))
        self._move_branch(repo, draft, commit)
        if clean:
            self.mirror.done(str(commit))
        return commit

    def import_edits(
        self, repo: pygit2.Repository, tip: pygit2.Oid | None, paths: Iterable[str]
    ) -> pygit2.Oid | None:
        """Commit what a person changed at `paths`, before it is overwritten; return the tip.

        A missing file is no edit here: it may be the accident that the write repairs.

        Raises:
            InvalidArgument: a link, folder or device stands at one of the paths.
        """
        if tip is None or not self.layout.shows_main():
            return tip
        tree = tree_of(repo, tip)
        edits: dict[str, Item | None] = {}
        for path in paths:
            try:
                self.mirror.files.check_writable(path)
                found = self._file_item(repo, path, item_at(tree, path))
            except Obstructed as obstacle:
                raise InvalidArgument(
                    f"{path} cannot be changed: in the work tree, {obstacle}. Remove that first."
                ) from None
            if found is not None and found != item_at(tree, path):
                edits[path] = found
        if not edits:
            return tip
        return self.commit(repo, tip, edits, USER, edit_message(edits), from_files=True)

    def import_all(
        self, repo: pygit2.Repository, tip: pygit2.Oid | None, author: Author = USER
    ) -> pygit2.Oid | None:
        """Commit every difference between work tree and `tip`, deletions included.

        Left out are ignored files, links, files above the size limit and forbidden names. A
        work tree without any file is taken for lost, not for emptied.
        """
        if tip is not None and not self.layout.shows_main():
            return tip
        tree = tree_of(repo, tip)
        edits: dict[str, Item | None] = {}
        for path in self._suspects(tip):
            head = item_at(tree, path)
            try:
                found = self._file_item(repo, path, head)
            except Obstructed as obstacle:
                logger.warning("Not imported from the work tree: %s", obstacle)
                continue
            if found != head:
                edits[path] = found
        if not edits:
            return tip
        if all(item is None for item in edits.values()) and not any(self.mirror.files.walk()):
            return self.restore(repo)
        message = "Take up files written without git" if tip is None else edit_message(edits)
        return self.commit(repo, tip, edits, author, message, from_files=True)

    def take_up(
        self, repo: pygit2.Repository, tip: pygit2.Oid | None, message: str | None = None
    ) -> pygit2.Oid | None:
        """Commit all noted writes, one commit per author, and forget the notes. May be repeated."""
        notes = self.pending.read()
        groups: dict[Author, dict[str, Item | None]] = {}
        for path, note in notes.by_path.items():
            head = item_at(tree_of(repo, tip), path)
            try:
                found = self._file_item(repo, path, head)
            except Obstructed as obstacle:
                logger.warning("Not taken up into a commit: %s", obstacle)
                continue
            # somebody else changed the file since: the noted author did not write this text
            is_as_noted = (None if found is None else str(found.blob)) == note.blob
            groups.setdefault(note.author if is_as_noted else USER, {})[path] = found
        for author, changes in groups.items():
            text = message or edit_message(changes)
            tip = self.commit(repo, tip, changes, author, text, from_files=True)
        if notes.everything:
            tip = self.import_all(repo, tip, SYSTEM_AUTHOR)
        self.pending.clear()
        return tip

    # -- settling ----------------------------------------------------------------------------

    def settle(self, repo: pygit2.Repository) -> pygit2.Oid | None:
        """Bring work tree and index to the branch's tip; return the tip, which may be new.

        Does nothing but read two small files when they are there already. Otherwise it finishes
        or undoes what a dead process began, follows pushes and commits made by a person, and
        merges in edits that were not committed. Raises LostRace.
        """
        tip = tip_of(repo)
        if tip is None or not self.layout.shows_main():
            return tip
        shown = self.mirror.shown()
        if not self.layout.has_pointer():
            self.layout.make_folders()
            self.layout.point_to_git_dir()
            shown = ()
        return tip if shown == (str(tip),) else self._catch_up(repo, tip, shown)

    def restore(self, repo: pygit2.Repository) -> pygit2.Oid | None:
        """Compare every file with the tip: bring back missing ones, commit changed ones."""
        tip = self.settle(repo)
        if tip is None or not self.layout.shows_main():
            return tip
        return self._catch_up(repo, tip, self.mirror.shown(), everything=True)

    def clear_locks(self) -> None:
        """Remove lock files whose owners are dead."""
        for name in ("index.lock", f"{BRANCH}.lock", "HEAD.lock", "packed-refs.lock"):
            remove_if_stale(self.layout.git_dir / name, self._places)

    def _catch_up(
        self,
        repo: pygit2.Repository,
        tip: pygit2.Oid,
        shown: tuple[str, ...],
        *,
        everything: bool = False,
    ) -> pygit2.Oid:
        trees = {commit: tree_of(repo, pygit2.Oid(hex=commit)) for commit in shown}
        bases = [tree for tree in trees.values() if tree is not None]
        tree = tree_of(repo, tip)
        paths: set[str] = set()
        for base in bases:
            paths |= changed_paths(base, tree) | changed_paths(bases[0], base)
        everything = everything or not bases
        if everything:
            paths = self._all_paths(tree)
        edits = self._edits(repo, paths, [*bases, tree], is_known_missing=everything)
        if not bases:
            edits = without_committed(repo, tip, edits)
        noted = (*shown, str(tip))
        if edits:
            parent = next((c for c, found in trees.items() if found is not None), str(tip))
            draft = self._merge(repo, tip, pygit2.Oid(hex=parent), edits)
            tip = draft.store(repo)
            # noted as ours only when it has landed: until then the files are its only copy
            self._move_branch(repo, draft, tip)
            noted = (*noted, *map(str, draft.parents), str(tip))
            tree = tree_of(repo, tip)
            paths |= changed_paths(tree_of(repo, draft.parents[0]), tree)
        self.mirror.begin(*noted)
        if tree is not None and self.mirror.put(repo, paths, tree):
            self.mirror.done(str(tip))
        return tip

    def _edits(
        self,
        repo: pygit2.Repository,
        paths: Iterable[str],
        trees: list[pygit2.Tree | None],
        *,
        is_known_missing: bool,
    ) -> dict[str, Item | None]:
        """Return what stands at `paths` and is in none of `trees`: a person's edits."""
        edits: dict[str, Item | None] = {}
        for path in paths:
            items = [item_at(tree, path) for tree in trees]
            known = {None if item is None else item.blob for item in items}
            try:
                found = self._file_item(repo, path, items[-1])
            except Obstructed:
                continue
            if (None if found is None else found.blob) in known:
                continue
            if found is not None or not is_known_missing:
                edits[path] = found
        return edits

    def _merge(
        self,
        repo: pygit2.Repository,
        tip: pygit2.Oid,
        base: pygit2.Oid,
        edits: Mapping[str, Item | None],
    ) -> Draft:
        """Commit `edits` on the commit they were made on and merge it; the branch wins conflicts.

        The losing text stays in history as the merge's second parent.
        """
        edited = build_tree(repo, tree_of(repo, base), edits)
        draft = Draft.now(USER, edit_message(edits), edited, (base,))
        if base == tip:
            return draft
        theirs = draft.store(repo)
        merged = repo.merge_commits(tip, theirs, favor=MergeFavor.OURS)
        for _ancestor, ours, other in list(merged.conflicts or ()):
            kept = ours or other
            del merged.conflicts[kept.path]
            merged.add(kept)
        message = "Merge edits made in the work tree"
        return Draft.now(USER, message, merged.write_tree(repo), (tip, theirs))

    def _all_paths(self, tree: pygit2.Tree | None) -> set[str]:
        paths = set() if tree is None else {path for path, _item in files_in(tree)}
        try:
            return paths | set(self.mirror.index.load().paths())
        except UnreadableIndex:
            return paths

    def _suspects(self, tip: pygit2.Oid | None) -> list[str]:
        if tip is None:
            return [path for path, _info in self.mirror.files.walk() if is_allowed(path)]
        repo = open_repository(self.layout.git_dir, with_work_tree=True)
        found = repo.status(untracked_files="all")
        return [
            path
            for path, flags in sorted(found.items())
            if flags not in (FileStatus.CURRENT, FileStatus.IGNORED) and is_allowed(path)
        ]

    def _file_item(self, repo: pygit2.Repository, path: str, head: Item | None) -> Item | None:
        """Return the work tree's file as an item, its blob stored; None when there is no file."""
        data = self.mirror.files.read(path)
        info = self.mirror.files.stat(path)
        if data is None or info is None:
            return None
        blob = pygit2.hash(data)
        if head is None or blob != head.blob:
            blob = repo.create_blob(data)
        if head is not None and head.mode == FileMode.LINK:
            return Item(blob, head.mode)
        return Item(blob, int(FileMode.BLOB_EXECUTABLE if info.st_mode & 0o100 else FileMode.BLOB))

    def _move_branch(self, repo: pygit2.Repository, draft: Draft, commit: pygit2.Oid) -> None:
        expected = draft.parents[0] if draft.parents else None
        deadline = time.monotonic() + REF_LOCK_WAIT_SECONDS
        while True:
            try:
                draft.land(repo)
                return
            except (pygit2.GitError, OSError, ValueError) as error:
                now = tip_of(repo)
                if now == commit:
                    return
                if now != expected:
                    raise LostRace from error
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"The memory's branch cannot be moved: {error}. If no git command is "
                        "running there, check free space and permissions, then try again."
                    ) from error
            self.clear_locks()
            time.sleep(0.02)


def without_committed(
    repo: pygit2.Repository, tip: pygit2.Oid, edits: Mapping[str, Item | None]
) -> dict[str, Item | None]:
    """Leave out what recent history holds at the same path: an old copy, not an edit.

    Only asked when nothing tells which commit the files show, after a restored backup say.
    """
    left = dict(edits)
    for seen, commit in enumerate(repo.walk(tip, SortMode.NONE)):
        if not left or seen >= LOOK_BACK:
            break
        for path, item in list(left.items()):
            old = item_at(commit.tree, path)
            if item is not None and old is not None and old.blob == item.blob:
                del left[path]
    return left


def edit_message(paths: Iterable[str]) -> str:
    """Return the message of a commit that changes `paths`."""
    named = list(paths)
    if len(named) == 1:
        return f"Update {named[0]}"
    return f"Update {len(named)} files\n\n" + "\n".join(sorted(named)[:100])
