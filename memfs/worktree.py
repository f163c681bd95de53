"""Files of a work tree, read and replaced without ever following a symbolic link.

An agent's tools write in this folder too, so nothing found there is trusted: every folder on
the way is opened relative to the one before it with O_NOFOLLOW.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_FILE_BYTES = 16 * 1024 * 1024  # a memory holds text; more is refused before it fills RAM
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe must not wait for a writer
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Obstructed(Exception):
    """Something that is not a plain file or folder of ours stands at a path."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path, self.why = path, why


class WorkTree:
    """The folder that mirrors a memory; `scratch` is a file on the same file system for new text.

    Only one writer at a time may use `write` and `remove`: the caller holds the repository lock.
    """

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root, self._scratch = root, scratch

    def read(self, path: str) -> bytes | None:
        """Return the bytes at `path`, or None when nothing is there.

        Raises Obstructed for links, folders, devices and files above MAX_FILE_BYTES.
        """
        try:
            with self._parent(path) as (folder, name):
                handle = _open_file(path, name, folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with os.fdopen(handle, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise Obstructed(path, f"is larger than {MAX_FILE_BYTES} bytes")
        return data

    def stat(self, path: str) -> os.stat_result | None:
        """Return the `lstat` of a plain file, else None."""
        try:
            with self._parent(path) as (folder, name):
                found = os.lstat(name, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError, Obstructed):
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    def check_writable(self, path: str) -> None:
        """Raise Obstructed when `write` could not put a file at `path`."""
        try:
            with self._parent(path) as (folder, name):
                _refuse_obstacle(path, name, folder)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise Obstructed(path, "has a file where a folder is needed") from None

    def write(self, path: str, data: bytes, *, executable: bool = False, sync: bool = True) -> None:
        """Replace the file at `path` in one step; `sync` makes the bytes durable before.

        A process that dies here leaves either the old or the new file. Raises Obstructed.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._scratch.unlink(missing_ok=True)
        with os.fdopen(os.open(self._scratch, flags, 0o777 if executable else 0o666), "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        try:
            with self._parent(path, create=True) as (folder, name):
                _refuse_obstacle(path, name, folder)
                _remove_empty_folder(path, name, folder)
                os.rename(self._scratch, name, dst_dir_fd=folder)
        except NotADirectoryError:
            raise Obstructed(path, "has a file where a folder is needed") from None

    def remove(self, path: str) -> None:
        """Delete the file at `path` and the folders it leaves empty; absent is fine."""
        try:
            with self._parent(path) as (folder, name):
                found = os.lstat(name, dir_fd=folder)
                if not stat.S_ISREG(found.st_mode):
                    raise Obstructed(path, "is not a plain file")
                os.unlink(name, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        parent = path.rpartition("/")[0]
        while parent:
            try:
                with self._parent(parent) as (folder, name):
                    os.rmdir(name, dir_fd=folder)
            except (OSError, Obstructed):
                return
            parent = parent.rpartition("/")[0]

    def walk(self, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """Yield (path, lstat) of the plain files below the folder part of `prefix`, sorted."""
        start = prefix.rpartition("/")[0]
        yield from self._walk(start, prefix)

    def _walk(self, folder: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            with self._folder(folder) as handle:
                entries = _entries(handle)
        except (FileNotFoundError, NotADirectoryError, Obstructed):
            return
        for name, info in entries:
            path = f"{folder}/{name}" if folder else name
            if name.lower() == ".git":
                continue
            if stat.S_ISDIR(info.st_mode):
                if path.startswith(prefix) or prefix.startswith(f"{path}/"):
                    yield from self._walk(path, prefix)
            elif stat.S_ISREG(info.st_mode) and path.startswith(prefix):
                yield path, info

    @contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        with self._parent(f"{path}/x" if path else "x") as (handle, _name):
            yield handle

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        *folders, name = path.split("/")
        handle = os.open(self.root, _FOLDER)
        try:
            for folder in folders:
                inner = _open_folder(path, folder, handle, create)
                os.close(handle)
                handle = inner
            yield handle, name
        finally:
            os.close(handle)


def _entries(folder: int) -> list[tuple[str, os.stat_result]]:
    found = []
    for name in sorted(os.listdir(folder)):
        try:
            found.append((name, os.lstat(name, dir_fd=folder)))
        except FileNotFoundError:
            continue  # removed since the listing
    return found


def _open_folder(path: str, name: str, parent: int, create: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
        os.mkdir(name, dir_fd=parent)
        return os.open(name, _FOLDER, dir_fd=parent)
    except OSError:
        if stat.S_ISLNK(os.lstat(name, dir_fd=parent).st_mode):
            raise Obstructed(path, f"goes through the symbolic link {name}") from None
        raise


def _open_file(path: str, name: str, folder: int) -> int:
    try:
        handle = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Obstructed(path, f"cannot be opened as a plain file ({error.strerror})") from None
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise Obstructed(path, "is a folder" if stat.S_ISDIR(mode) else "is not a plain file")
    return handle


def _refuse_obstacle(path: str, name: str, folder: int) -> None:
    try:
        mode = os.lstat(name, dir_fd=folder).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise Obstructed(path, "is a symbolic link")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise Obstructed(path, "is not a plain file")


def _remove_empty_folder(path: str, name: str, folder: int) -> None:
    try:
        os.rmdir(name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        raise Obstructed(path, "is a folder that holds files") from None
