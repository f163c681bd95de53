"""Reading and building git objects: trees from changed paths only, blobs, the branch's tip.

Nothing here locks or touches the work tree. The branch is always `main`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import FileMode, ObjectType, Option, RepositoryOpenFlag

from memfs.authors import SYSTEM_AUTHOR, Author
from souveraine.errors import InvalidArgument, NotFound, Unavailable

BRANCH = "refs/heads/main"
_HEX = frozenset("0123456789abcdef")
_PLAIN = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)

# Without it a power cut may leave a branch that points at an empty object file.
pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)
# libgit2 by default keeps no tree above 4 KB (about 100 files) and inflates it for each look-up.
pygit2.option(Option.SET_CACHE_OBJECT_LIMIT, ObjectType.TREE, 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Item:
    """A file in a tree: its blob and mode."""

    blob: pygit2.Oid
    mode: int


def open_repository(git_dir: Path, *, with_work_tree: bool = False) -> pygit2.Repository:
    """Open (0.15 ms) a git directory. A repository object stays with one thread.

    Without the work tree it also opens when that folder is lost.
    Raises NotFound when there is none, Unavailable when it cannot be read.
    """
    if not (git_dir / "HEAD").exists():
        raise NotFound("This agent has no memory repository. Create it first.")
    try:
        flags = RepositoryOpenFlag.DEFAULT if with_work_tree else RepositoryOpenFlag.BARE
        return pygit2.Repository(str(git_dir), flags)
    except pygit2.GitError as error:
        raise Unavailable(
            f"The agent's memory repository cannot be opened: {error}. Check its owner and run "
            "`git fsck` in it."
        ) from error


def read_tip(git_dir: Path) -> str | None:
    """Return the commit id of `main` or None; one small file is read in the common case."""
    try:
        text = (git_dir / BRANCH).read_text("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        text = ""
    if len(text) == 40 and set(text) <= _HEX:
        return text
    if not (git_dir / "HEAD").exists():
        return None
    found = tip_of(open_repository(git_dir))
    return None if found is None else str(found)


def tip_of(repo: pygit2.Repository) -> pygit2.Oid | None:
    """Return the commit id of `main`, or None before the first commit."""
    try:
        target = repo.lookup_reference(BRANCH).target
    except KeyError:
        return None
    return target if isinstance(target, pygit2.Oid) else None


def tree_of(repo: pygit2.Repository, commit: pygit2.Oid | None) -> pygit2.Tree | None:
    """Return the tree of a commit; None for None and for commits that are not there."""
    found = None if commit is None else repo.get(commit)
    return found.tree if isinstance(found, pygit2.Commit) else None


def find_commit(repo: pygit2.Repository, commit_id: str) -> pygit2.Commit:
    """Return a commit by its id, full or at least 7 digits. Raises NotFound."""
    found = None
    if 7 <= len(commit_id) <= 40 and set(commit_id) <= _HEX:
        try:
            found = repo.get(commit_id)
        except ValueError:  # ambiguous
            found = None
    if not isinstance(found, pygit2.Commit):
        raise NotFound(f"There is no commit {commit_id[:60]!r} in this memory.")
    return found


def item_at(tree: pygit2.Tree | None, path: str) -> Item | None:
    """Return the file at `path`, or None for folders and absent paths."""
    if tree is None:
        return None
    try:
        found = tree[path]
    except KeyError:
        return None
    if not isinstance(found, pygit2.Blob):
        return None
    return Item(found.id, int(found.filemode))


def plain_item_at(tree: pygit2.Tree | None, path: str) -> Item | None:
    """As `item_at`, but links that somebody pushed do not count as files."""
    item = item_at(tree, path)
    return item if item is not None and item.mode in _PLAIN else None


def files_in(tree: pygit2.Tree, prefix: str = "") -> Iterator[tuple[str, Item]]:
    """Yield (path, item) of all files whose path starts with `prefix`, in git's order."""
    folder = prefix.rpartition("/")[0]
    start: pygit2.Object = tree
    if folder:
        try:
            start = tree[folder]
        except KeyError:
            return
    if isinstance(start, pygit2.Tree):
        yield from _files_below(start, folder, prefix)


def _files_below(tree: pygit2.Tree, folder: str, prefix: str) -> Iterator[tuple[str, Item]]:
    for found in tree:
        path = f"{folder}/{found.name}" if folder else str(found.name)
        if isinstance(found, pygit2.Tree):
            if path.startswith(prefix) or prefix.startswith(f"{path}/"):
                yield from _files_below(found, path, prefix)
        elif isinstance(found, pygit2.Blob) and path.startswith(prefix):
            yield path, Item(found.id, int(found.filemode))


def changed_paths(old: pygit2.Tree | None, new: pygit2.Tree | None) -> set[str]:
    """Return the paths that differ; only folders that differ are read."""
    if old is None or new is None:
        one = old or new
        return set() if one is None else {path for path, _item in files_in(one)}
    if old.id == new.id:
        return set()
    paths: set[str] = set()
    for delta in old.diff_to_tree(new).deltas:
        paths.update((delta.old_file.path, delta.new_file.path))
    return paths


def build_tree(
    repo: pygit2.Repository, base: pygit2.Tree | None, changes: Mapping[str, Item | None]
) -> pygit2.Oid:
    """Write the trees on the way to `changes` (None deletes) and return the new root's id.

    Raises InvalidArgument when a file would take the place of a folder or the reverse.
    """
    split = {tuple(path.split("/")): item for path, item in changes.items()}
    built = _build(repo, base, split, "")
    return repo.TreeBuilder().write() if built is None else built


def _build(
    repo: pygit2.Repository,
    base: pygit2.Tree | None,
    changes: Mapping[tuple[str, ...], Item | None],
    where: str,
) -> pygit2.Oid | None:
    builder = repo.TreeBuilder() if base is None else repo.TreeBuilder(base)
    deeper: dict[str, dict[tuple[str, ...], Item | None]] = {}
    for (name, *rest), item in changes.items():
        if rest:
            deeper.setdefault(name, {})[tuple(rest)] = item
        elif item is None:
            _remove(builder, name, f"{where}{name}")
    for name, inner in deeper.items():
        _build_folder(repo, builder, name, inner, where)
    for (name, *rest), item in changes.items():
        if not rest and item is not None:
            if isinstance(builder.get(name), pygit2.Tree):
                raise InvalidArgument(
                    f"{where}{name} is a folder, so no file can have this name. Choose another."
                )
            builder.insert(name, item.blob, FileMode(item.mode))
    return builder.write() if len(builder) else None


def _build_folder(
    repo: pygit2.Repository,
    builder: pygit2.TreeBuilder,
    name: str,
    inner: Mapping[tuple[str, ...], Item | None],
    where: str,
) -> None:
    found = builder.get(name)
    if found is not None and not isinstance(found, pygit2.Tree):
        if all(item is None for item in inner.values()):
            return
        raise InvalidArgument(
            f"{where}{name} is a file, so nothing can be stored below it. Choose another folder."
        )
    built = _build(repo, found, inner, f"{where}{name}/")
    if built is not None:
        builder.insert(name, built, FileMode.TREE)
    elif found is not None:
        builder.remove(name)


def _remove(builder: pygit2.TreeBuilder, name: str, path: str) -> None:
    found = builder.get(name)
    if isinstance(found, pygit2.Tree):
        raise InvalidArgument(f"{path} is a folder. Delete the files in it instead.")
    if found is not None:
        builder.remove(name)


@dataclass(frozen=True, slots=True)
class Draft:
    """A commit's content; writing it twice gives the same id, since the time is part of it."""

    author: Author
    message: str
    tree: pygit2.Oid
    parents: tuple[pygit2.Oid, ...]
    at: int  # seconds since 1970

    @classmethod
    def now(
        cls, author: Author, message: str, tree: pygit2.Oid, parents: Iterable[pygit2.Oid]
    ) -> Draft:
        return cls(author, message, tree, tuple(parents), int(time.time()))

    def store(self, repo: pygit2.Repository) -> pygit2.Oid:
        """Write the commit object; no branch moves."""
        return self._create(repo, None)

    def land(self, repo: pygit2.Repository) -> pygit2.Oid:
        """Move `main` to the commit; GitError when main is not at the first parent any more."""
        return self._create(repo, BRANCH)

    def _create(self, repo: pygit2.Repository, reference: str | None) -> pygit2.Oid:
        author = pygit2.Signature(self.author.name, self.author.email, self.at, 0)
        committer = pygit2.Signature(SYSTEM_AUTHOR.name, SYSTEM_AUTHOR.email, self.at, 0)
        return repo.create_commit(
            reference, author, committer, self.message, self.tree, list(self.parents)
        )
