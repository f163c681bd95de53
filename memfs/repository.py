"""An agent's memory: the public face of this package, safe to use from threads and processes.

Reads take no lock. Every change runs under the repository's lock and either has landed when the
call returns, or raised. See `memfs.store` for the order of a commit and what a crash leaves.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pygit2

from memfs import history
from memfs.authors import Author
from memfs.layout import FOLDERS
from memfs.locking import LOCK_TIMEOUT_SECONDS
from memfs.modes import CommitMode
from memfs.objects import Item, find_commit, open_repository, read_tip, tip_of, tree_of
from memfs.paths import KEEP, check_path
from memfs.pending import Note
from memfs.reading import (
    Entries,
    Log,
    decode,
    encode,
    list_commit,
    list_files,
    new_item,
    read_blob,
)
from memfs.store import LostRace, Store
from memfs.worktree import Obstructed
from souveraine.errors import ConcurrentUpdate, InvalidArgument, NotFound

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 20  # times that git may move the branch under one write before it gives up

Transform = Callable[[str | None], str | None]
Read = Callable[[str], bytes | None]
Plan = Callable[[Read], Mapping[str, bytes | None]]
Work = Callable[[pygit2.Repository, pygit2.Oid | None], pygit2.Oid | None]


class MemoryRepository:
    """One agent's memory below `root`; the object is cheap and holds no handles."""

    def __init__(self, root: Path, mode: CommitMode = CommitMode.COMMIT) -> None:
        self.root, self.mode = Path(root), mode
        self._store = Store(self.root)

    @classmethod
    def create(
        cls,
        root: Path,
        files: Mapping[str, str],
        author: Author,
        message: str = "Initial agent creation",
        mode: CommitMode = CommitMode.COMMIT,
    ) -> MemoryRepository:
        """Make a memory whose first commit holds `files` and the standard folders.

        Idempotent: a creation that died is completed (what already lies in the work tree
        stays); a memory that is complete is returned as it is, whatever `files` say.
        Raises InvalidArgument for a bad path. In FILES mode there is no commit.
        """
        first = {path: encode(path, text) for path, text in files.items()}
        first |= {f"{folder}/{KEEP}": b"" for folder in FOLDERS}
        for path in first:
            check_path(path)
        memory = cls(root, mode)
        store = memory._store
        store.layout.make_folders()
        with store.lock().held():
            store.layout.complete()
            if mode is CommitMode.FILES:
                memory._create_files(first)
            elif read_tip(store.layout.git_dir) is None:
                memory._create_commit(first, author, message)
        return memory

    @property
    def work_tree(self) -> Path:
        """The folder with the memory as files."""
        return self._store.layout.work_tree

    @property
    def git_dir(self) -> Path:
        """The git directory, for serving it over HTTP."""
        return self._store.layout.git_dir

    # -- reading -----------------------------------------------------------------------------

    def head(self) -> str | None:
        """Return the newest commit id of `main`, None before the first; costs one small read."""
        self._take_up_leftovers()
        return read_tip(self.git_dir)

    def version(self, prefix: str = "") -> str:
        """Return a text that changes whenever a file under `prefix` changes.

        In COMMIT mode it is `head()`. In the other modes the files' times are read, so that it
        also notices a person's edits; the cost grows with the number of files under `prefix`.
        """
        if self.mode is CommitMode.COMMIT:
            return self.head() or ""
        digest = hashlib.sha256()
        for path, info in self._store.mirror.files.walk(prefix):
            digest.update(f"{path}\0{info.st_mtime_ns}\0{info.st_size}\0{info.st_ino}\0".encode())
        return digest.hexdigest()

    def read(self, path: str, commit: str | None = None) -> str:
        """Return the text at `path`, as of `commit` if given.

        Raises NotFound (no such file or commit) and InvalidArgument (bad path, not UTF-8).
        """
        return decode(path, self.read_bytes(path, commit))

    def read_bytes(self, path: str, commit: str | None = None) -> bytes:
        """Return the bytes at `path`. Raises NotFound and InvalidArgument."""
        check_path(path)
        if commit is None and self.mode is not CommitMode.COMMIT:
            self._follow_branch()
            found = self._read_file(path)
        else:
            self._take_up_leftovers()
            repo = self._open()
            tip = tip_of(repo) if commit is None else find_commit(repo, commit).id
            found = read_blob(repo, tree_of(repo, tip), path)
        if found is None:
            when = "" if commit is None else f" in commit {commit}"
            raise NotFound(f"There is no file {path} in this memory{when}.")
        return found

    def exists(self, path: str) -> bool:
        """Tell whether a file is at `path`. Raises InvalidArgument for a bad path."""
        try:
            self.read_bytes(path)
        except NotFound:
            return False
        return True

    def list(self, prefix: str = "") -> Entries:
        """Return the files whose path starts with `prefix`, without `.gitkeep`, sorted."""
        if self.mode is not CommitMode.COMMIT:
            self._follow_branch()
            return list_files(self._store.mirror.files, prefix)
        self._take_up_leftovers()
        return list_commit(self._open(), prefix)

    def log(self, path: str | None = None, limit: int = 50, before: str | None = None) -> Log:
        """Return commits, newest first, that touched `path` (file or folder); see `history.log`.

        Raises NotFound when `before` is no commit.
        """
        self._take_up_leftovers()
        place = None if path is None else check_path(path.rstrip("/"))
        return history.log(self._open(), place, limit, before)

    def diff(self, commit: str) -> str:
        """Return the patch of a commit against its first parent. Raises NotFound."""
        return history.diff(self._open(), commit)

    # -- writing -----------------------------------------------------------------------------

    def write(self, path: str, text: str, author: Author, message: str | None = None) -> str | None:
        """Store `text` at `path`; return the HEAD commit id (None only before any commit).

        The same text again makes no commit.

        Raises:
            InvalidArgument: bad path, or a link or folder is in the way.
            PayloadTooLarge: more than MAX_FILE_BYTES.
            ConcurrentUpdate, Unavailable: others kept the memory busy.
        """
        return self.write_many({path: text}, author, message or f"Update {path}")

    def write_many(
        self, changes: Mapping[str, str | None], author: Author, message: str
    ) -> str | None:
        """Store several files in one commit; None deletes (absent is fine). Errors as `write`."""
        encoded = {
            check_path(path): text if text is None else encode(path, text)
            for path, text in changes.items()
        }
        return self._change(encoded, lambda _read: encoded, author, message)

    def transform(
        self, path: str, function: Transform, author: Author, message: str | None = None
    ) -> str | None:
        """Replace the text at `path` by `function(text)`; None stands for no file, both ways.

        The function runs under the lock, and again if git moved the branch meanwhile: it must
        be quick and without effects of its own. Errors as `write`; its own pass through.
        """
        check_path(path)

        def plan(read: Read) -> Mapping[str, bytes | None]:
            old = read(path)
            new = function(None if old is None else decode(path, old))
            return {path: None if new is None else encode(path, new)}

        return self._change((path,), plan, author, message or f"Update {path}")

    def append(
        self, path: str, text: str, author: Author, message: str | None = None
    ) -> str | None:
        """Add `text` at the end of the file, which is made if absent."""
        return self.transform(path, lambda old: (old or "") + text, author, message)

    def append_journal(self, text: str, author: Author, now: datetime | None = None) -> str | None:
        """Add an entry to the day's journal: blank line, `## <RFC 3339 time>`, text.

        `now` is aware; the file is named by its UTC date.
        """
        at = (now or datetime.now(UTC)).astimezone(UTC)
        entry = f"\n## {at.isoformat(timespec='seconds')}\n{text.rstrip()}\n"
        return self.append(f"journal/{at:%Y-%m-%d}.md", entry, author)

    def delete(self, path: str, author: Author, message: str | None = None) -> str | None:
        """Delete the file at `path`. Raises NotFound when there is none."""

        def plan(read: Read) -> Mapping[str, bytes | None]:
            if read(path) is None:
                raise NotFound(f"There is no file {path} in this memory.")
            return {path: None}

        check_path(path)
        return self._change((path,), plan, author, message or f"Delete {path}")

    # -- upkeep ------------------------------------------------------------------------------

    def commit_pending(self, message: str | None = None) -> str | None:
        """Commit what was written in DEFERRED mode, by author; return the last new commit id.

        None when nothing waited. In FILES mode nothing is ever committed.
        """
        if self.mode is CommitMode.FILES or not self._store.pending.exists():
            return None
        return self._new_head(lambda repo, tip: self._store.take_up(repo, tip, message))

    def import_worktree_changes(self) -> str | None:
        """Commit everything a person changed in the work tree (full scan) as `user`.

        Deleted files are deleted. Returns the new commit id, None when there was nothing new or
        in FILES mode. Noted writes of DEFERRED mode are committed first, by their authors.
        """
        if self.mode is CommitMode.FILES:
            return None
        try:
            return self._new_head(self._import)
        except pygit2.GitError as error:  # an index that a power cut left empty, say
            logger.warning("event=memory_repaired git_dir=%s error=%s", self.git_dir, error)
            before = self.head()
            after = self.repair()
            return after if after != before else None

    def sync(self) -> str | None:
        """Bring work tree and index to the branch, for example after a push; return HEAD."""
        if self.mode is CommitMode.FILES:
            return None
        return self._retry(lambda _repo, tip: tip)

    def repair(self) -> str | None:
        """Mend what a crash or a careless hand left: locks, layout, work tree, index.

        Missing files come back, changed ones are committed as `user`. Returns HEAD. The cost
        grows with the number of files. May be repeated.
        """
        store = self._store
        store.layout.make_folders()
        with self.exclusive():
            store.layout.complete()
            store.clear_locks()
            if self.mode is CommitMode.FILES:
                return None
            return self._retry(lambda repo, _tip: store.restore(repo))

    @contextmanager
    def exclusive(self, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """Keep all other writers of this memory out; this thread may write inside.

        Raises NotFound when there is no memory, Unavailable after `timeout_seconds`.
        """
        try:
            with self._store.lock().held(timeout_seconds):
                yield
        except FileNotFoundError:
            if self._store.layout.private.is_dir():
                raise
            raise NotFound("This agent has no memory repository. Create it first.") from None

    # -- inside ------------------------------------------------------------------------------

    def _open(self) -> pygit2.Repository:
        return open_repository(self.git_dir)

    def _new_head(self, work: Work) -> str | None:
        with self.exclusive():
            before = read_tip(self.git_dir)
            after = self._retry(work)
        return after if after != before else None

    def _retry(self, work: Work) -> str | None:
        with self.exclusive():
            for _attempt in range(MAX_ATTEMPTS):
                repo = self._open()
                try:
                    result = work(repo, self._store.settle(repo))
                except LostRace:
                    continue
                return None if result is None else str(result)
        raise ConcurrentUpdate("Other git processes keep moving this memory's branch. Try again.")

    def _change(self, paths: Iterable[str], plan: Plan, author: Author, message: str) -> str | None:
        if self.mode is not CommitMode.COMMIT:
            return self._change_files(plan, author)
        store = self._store

        def work(repo: pygit2.Repository, tip: pygit2.Oid | None) -> pygit2.Oid | None:
            if store.pending.exists():
                tip = store.take_up(repo, tip)
            tip = store.import_edits(repo, tip, paths)
            tree = tree_of(repo, tip)
            changes = plan(lambda path: read_blob(repo, tree, path))
            items = {path: new_item(repo, tree, path, data) for path, data in changes.items()}
            return store.commit(repo, tip, items, author, message)

        return self._retry(work)

    def _change_files(self, plan: Plan, author: Author) -> str | None:
        store, files = self._store, self._store.mirror.files
        with self.exclusive():
            if self.mode is CommitMode.DEFERRED:
                self.sync()
            changes = {
                path: data
                for path, data in plan(self._read_file).items()
                if self._read_file(path) != data
            }
            try:
                for path, data in changes.items():
                    if data is not None:
                        files.check_writable(path)
                self._note(changes, author)
                for path, data in changes.items():
                    if data is None:
                        files.remove(path)
                    else:
                        files.write(path, data)
            except Obstructed as obstacle:
                raise InvalidArgument(f"This cannot be written: {obstacle}.") from None
        return read_tip(store.layout.git_dir)

    def _note(self, changes: Mapping[str, bytes | None], author: Author) -> None:
        if self.mode is CommitMode.FILES:
            self._store.pending.add_everything()
        elif changes:
            self._store.pending.add(
                {
                    path: Note(author, None if data is None else str(pygit2.hash(data)))
                    for path, data in changes.items()
                }
            )

    def _create_commit(self, first: Mapping[str, bytes], author: Author, message: str) -> None:
        repo = self._open()
        items: dict[str, Item | None] = {}
        for path, data in first.items():
            present = self._read_file(path)
            items[path] = new_item(repo, None, path, data if present is None else present)
        self._store.commit(repo, None, items, author, message)

    def _create_files(self, first: Mapping[str, bytes]) -> None:
        self._store.pending.add_everything()
        for path, data in first.items():
            if self._read_file(path) is None:
                self._store.mirror.files.write(path, data)

    def _import(self, repo: pygit2.Repository, tip: pygit2.Oid | None) -> pygit2.Oid | None:
        if self._store.pending.exists():
            tip = self._store.take_up(repo, tip)
        return self._store.import_all(repo, tip)

    def _take_up_leftovers(self) -> None:
        """After a change of mode to COMMIT, writes of the old mode become commits first."""
        if self.mode is CommitMode.COMMIT and self._store.pending.exists():
            self._retry(self._store.take_up)

    def _follow_branch(self) -> None:
        """In DEFERRED mode the work tree is read, so it must show what was pushed."""
        if self.mode is CommitMode.DEFERRED:
            tip = read_tip(self.git_dir)
            if tip is not None and self._store.mirror.shown() != (tip,):
                self.sync()

    def _read_file(self, path: str) -> bytes | None:
        try:
            return self._store.mirror.files.read(path)
        except Obstructed as obstacle:
            raise InvalidArgument(f"This cannot be read: {obstacle}.") from None
