"""What a memory holds, read from a commit or from the work tree; text to bytes and back.

Called by `memfs.repository` only.
"""

from __future__ import annotations

from dataclasses import dataclass

import pygit2
from pygit2.enums import FileMode

from memfs.history import CommitInfo
from memfs.objects import Item, files_in, item_at, plain_item_at, tip_of, tree_of
from memfs.paths import KEEP
from memfs.worktree import MAX_FILE_BYTES, Obstructed, WorkTree
from souveraine.errors import InvalidArgument, PayloadTooLarge


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a memory: its path, size in bytes and git blob id."""

    path: str
    size_bytes: int
    blob_id: str


Entries = list[Entry]
Log = list[CommitInfo]


def list_commit(repo: pygit2.Repository, prefix: str) -> Entries:
    """Return the files of the branch under `prefix`, sorted by path."""
    tree = tree_of(repo, tip_of(repo))
    if tree is None:
        return []
    found = [
        Entry(path, repo.odb.read_header(item.blob)[1], str(item.blob))
        for path, item in files_in(tree, prefix)
        if item.mode != FileMode.LINK and not _is_keep(path)
    ]
    return sorted(found, key=lambda entry: entry.path)


def list_files(files: WorkTree, prefix: str) -> Entries:
    """Return the files of the work tree under `prefix`, sorted by path; each is read."""
    found = []
    for path, _info in files.walk(prefix):
        if _is_keep(path):
            continue
        try:
            data = files.read(path)
        except Obstructed:
            continue
        if data is not None:
            found.append(Entry(path, len(data), str(pygit2.hash(data))))
    return sorted(found, key=lambda entry: entry.path)


def _is_keep(path: str) -> bool:
    return path.rpartition("/")[2] == KEEP


def read_blob(repo: pygit2.Repository, tree: pygit2.Tree | None, path: str) -> bytes | None:
    """Return the bytes of a plain file in `tree`, else None."""
    item = plain_item_at(tree, path)
    found = None if item is None else repo.get(item.blob)
    return found.data if isinstance(found, pygit2.Blob) else None


def new_item(
    repo: pygit2.Repository, tree: pygit2.Tree | None, path: str, data: bytes | None
) -> Item | None:
    """Store `data` and return it as the file at `path`, whose mode is kept; None deletes."""
    if data is None:
        return None
    old = item_at(tree, path)
    mode = FileMode.BLOB if old is None or old.mode == FileMode.LINK else FileMode(old.mode)
    return Item(repo.create_blob(data), int(mode))


def encode(path: str, text: str) -> bytes:
    """Return the bytes to store. Raises InvalidArgument and PayloadTooLarge."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"The text for {path} is not valid Unicode.") from None
    if len(data) > MAX_FILE_BYTES:
        raise PayloadTooLarge(
            f"The text for {path} has {len(data)} bytes; a memory file may have "
            f"{MAX_FILE_BYTES}. Split it."
        )
    return data


def decode(path: str, data: bytes) -> str:
    """Return the text of a file. Raises InvalidArgument."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8 text; read it as bytes.") from None
