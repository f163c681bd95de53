"""git's index (`git help gitformat-index`), changed entry by entry under git's own index.lock.

Written here because libgit2's binding takes 10 ms for one entry among 5,000 and cannot store
file times, without which every later `git status` reads all files again.
"""

from __future__ import annotations

import bisect
import hashlib
import logging
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pygit2

from memfs.locking import remove_if_stale
from memfs.objects import open_repository

logger = logging.getLogger(__name__)

LOCK_WAIT_SECONDS = 0.3  # a person's `git add` takes less; an open editor must not stop an agent
_OUR_MARK = b"souveraine"
_HEADER = struct.Struct(">4sLL")
_FIXED = struct.Struct(">10L20sH")
_EXTENDED = 0x4000
_LONGEST_NAME = 0xFFF
_CACHED_INDEXES = 8  # about 1 MB each at 5,000 files


class UnreadableIndex(Exception):
    """The file is damaged or in a form (version 4, split, sparse) that is not parsed here."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What the index shall say of a path: blob, mode, and the file's `lstat` if it is there."""

    blob: bytes  # 20 bytes
    mode: int
    info: os.stat_result | None


class GitIndex:
    """The entries of an index in git's order; other parts of the file are caches and left out."""

    def __init__(self) -> None:
        self._version = 2
        self._keys: list[bytes] = []
        self._entries: dict[bytes, bytes] = {}

    @classmethod
    def parse(cls, data: bytes) -> GitIndex:
        """Read the bytes of an index file. Raises UnreadableIndex."""
        index = cls()
        try:
            signature, index._version, count = _HEADER.unpack_from(data)
            if signature != b"DIRC" or index._version not in (2, 3):
                raise UnreadableIndex(f"version {index._version}")
            digest = hashlib.sha1(data[:-20], usedforsecurity=False).digest()
            if data[-20:] not in (digest, bytes(20)):  # zeros: git's index.skipHash
                raise UnreadableIndex("wrong checksum")
            end = index._parse_entries(data, count)
        except (struct.error, ValueError, IndexError) as error:
            raise UnreadableIndex(str(error)) from None
        if any(not name[:1].isupper() for name in _extensions(data, end)):
            raise UnreadableIndex("it needs an extension")
        return index

    def _parse_entries(self, data: bytes, count: int) -> int:
        at = _HEADER.size
        entries = self._entries
        for _ in range(count):
            flags = data[at + 60] << 8 | data[at + 61]
            start = at + (64 if flags & _EXTENDED else 62)
            end = data.index(0, start)
            size = (end - at + 8) & ~7
            entries[data[start:end] + bytes((0, (flags >> 12) & 3))] = data[at : at + size]
            at += size
        self._keys = list(entries)
        return at

    def paths(self) -> list[str]:
        """Return the paths without conflict, in git's order."""
        return [os.fsdecode(key[:-2]) for key in self._keys if key[-1] == 0]

    def blob(self, path: str) -> tuple[bytes, int] | None:
        """Return (20-byte blob id, mode) of `path`, or None."""
        entry = self._entries.get(_key(path))
        if entry is None:
            return None
        return entry[40:60], int.from_bytes(entry[24:28], "big")

    def set(self, path: str, staged: Staged) -> bool:
        """Put one entry and end a conflict at its path; return whether anything changed."""
        entry = _pack(path, staged)
        key = _key(path)
        conflicted = self._drop_stages(path)
        if self._entries.get(key) == entry:
            return conflicted
        if key not in self._entries:
            bisect.insort(self._keys, key)
        self._entries[key] = entry
        return True

    def remove(self, path: str) -> bool:
        """Take out a path with all its stages; return whether it was there."""
        conflicted = self._drop_stages(path)
        return self._drop(_key(path)) or conflicted

    def dump(self) -> bytes:
        """Return the bytes of the index file."""
        header = _HEADER.pack(b"DIRC", self._version, len(self._keys))
        body = header + b"".join(map(self._entries.__getitem__, self._keys))
        return body + hashlib.sha1(body, usedforsecurity=False).digest()

    def _drop_stages(self, path: str) -> bool:
        dropped = [self._drop(_key(path, stage)) for stage in (1, 2, 3)]
        return any(dropped)

    def _drop(self, key: bytes) -> bool:
        if self._entries.pop(key, None) is None:
            return False
        del self._keys[bisect.bisect_left(self._keys, key)]
        return True


class IndexFile:
    """The index of one git directory. The caller holds the repository lock."""

    def __init__(self, git_dir: Path, work_tree: Path) -> None:
        self._path, self._lock = git_dir / "index", git_dir / "index.lock"
        self._new = git_dir / "memfs" / "index.new"
        self._places = (git_dir, work_tree)

    def load(self) -> GitIndex:
        """Return the entries, an empty index when there is none. Raises UnreadableIndex."""
        signature = _signature(self._path)
        key = os.fspath(self._path)
        cached = _cache.take(key, signature)
        if cached is not None:
            return cached
        if signature is None:
            return GitIndex()
        return GitIndex.parse(self._path.read_bytes())

    def update(self, changes: Mapping[str, Staged | None], tree: pygit2.Tree) -> bool:
        """Set or (None) remove entries; False when a living git keeps the index locked.

        `tree` supplies the entries anew when the index is gone or cannot be read.
        """
        with self._locked() as free:
            if not free:
                return False
            index = self._load_or_rebuild(tree)
            changed = [_apply(index, path, staged) for path, staged in changes.items()]
            if any(changed) or not self._path.exists():
                self._new.write_bytes(index.dump())
                os.replace(self._new, self._path)
            _cache.put(os.fspath(self._path), _signature(self._path), index)
            return True

    def _load_or_rebuild(self, tree: pygit2.Tree) -> GitIndex:
        if self._path.exists():
            try:
                return self.load()
            except UnreadableIndex as error:
                logger.warning("Rebuilding %s, which cannot be read: %s", self._path, error)
        try:
            # a version that only libgit2 reads: what a person has staged is kept
            old = open_repository(self._path.parent).index
        except pygit2.GitError:
            old = pygit2.Index()
        if not len(old):
            # an index that lacks files means, at the next commit by hand, their deletion
            old.read_tree(tree)
        index = GitIndex()
        for entry in old:
            index.set(entry.path, Staged(entry.id.raw, int(entry.mode), None))
        return index

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold index.lock as git does. A mark tells our own left-over from git's."""
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while not self._take_lock():
            if time.monotonic() > deadline:
                yield False
                return
            time.sleep(0.005)
        try:
            yield True
        finally:
            self._lock.unlink(missing_ok=True)

    def _take_lock(self) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            handle = os.open(self._lock, flags, 0o666)
        except FileExistsError:
            if self._is_our_leftover():
                self._lock.unlink(missing_ok=True)
                return False
            remove_if_stale(self._lock, self._places)
            return False
        os.write(handle, _OUR_MARK)
        os.close(handle)
        return True

    def _is_our_leftover(self) -> bool:
        # whoever of us writes holds the repository lock, which is ours now: its owner is dead
        try:
            with self._lock.open("rb") as file:
                return file.read(len(_OUR_MARK)) == _OUR_MARK
        except FileNotFoundError:
            return False


_Signature = tuple[int, int, int]


class _Cache:
    """Parsed indexes of this process by path, each valid for one state of its file."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._found: OrderedDict[str, tuple[_Signature, GitIndex]] = OrderedDict()

    def take(self, key: str, signature: _Signature | None) -> GitIndex | None:
        """Remove and return the index: it is put back after its file has been written."""
        with self._mutex:
            found = self._found.pop(key, None)
        return found[1] if found is not None and found[0] == signature else None

    def put(self, key: str, signature: _Signature | None, index: GitIndex) -> None:
        if signature is None:
            return
        with self._mutex:
            self._found[key] = (signature, index)
            while len(self._found) > _CACHED_INDEXES:
                self._found.popitem(last=False)


_cache = _Cache()


def _apply(index: GitIndex, path: str, staged: Staged | None) -> bool:
    return index.remove(path) if staged is None else index.set(path, staged)


def _signature(path: Path) -> _Signature | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _key(path: str, stage: int = 0) -> bytes:
    return os.fsencode(path) + bytes((0, stage))


def _pack(path: str, staged: Staged) -> bytes:
    name = os.fsencode(path)
    times = _stat_fields(staged.info, staged.mode)
    flags = min(len(name), _LONGEST_NAME)
    fixed = _FIXED.pack(*times, staged.blob, flags) + name
    return fixed + bytes(8 - len(fixed) % 8)


def _stat_fields(info: os.stat_result | None, mode: int) -> tuple[int, ...]:
    if info is None:
        return (0, 0, 0, 0, 0, 0, mode, 0, 0, 0)
    changed, modified = divmod(info.st_ctime_ns, 10**9), divmod(info.st_mtime_ns, 10**9)
    fields = (*changed, *modified, info.st_dev, info.st_ino, mode, info.st_uid, info.st_gid)
    return tuple(field & 0xFFFFFFFF for field in (*fields, info.st_size))


def _extensions(data: bytes, at: int) -> Iterator[bytes]:
    while at + 8 <= len(data) - 20:
        yield data[at : at + 4]
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
