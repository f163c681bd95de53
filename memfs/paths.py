"""The one place that decides which paths exist inside a memory, before git or the disk sees them.

Called by everything here that takes a path from outside. What a work tree really holds (links,
devices) is the concern of `memfs.worktree`, which never follows a link.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from pathlib import Path

from souveraine.errors import InvalidArgument

MAX_PATH_BYTES = 1024  # git clients on other systems give up between 260 and 4,096
MAX_NAME_BYTES = 255  # limit of a name on the common file systems
MAX_DEPTH = 32  # one git tree object is written per level

KEEP = ".gitkeep"
_RESERVED = frozenset({".gitmodules", ".gitattributes"})


def check_path(path: str) -> str:
    """Return `path` unchanged if it names a file inside a memory.

    Accepted are relative paths with `/` between names: `system/persona.md`.

    Raises:
        InvalidArgument: empty, absolute, `..`, `.git` in any spelling, control characters,
            backslashes, not UTF-8, or too long.
    """
    if not path:
        raise InvalidArgument("The path is empty. Name a file, for example system/persona.md.")
    if path.startswith("/") or (len(path) > 1 and path[1] == ":"):
        raise _refused(path, "it must be relative to the memory, without a leading / or drive")
    if "\\" in path:
        raise _refused(path, "use / between folders, not \\")
    if any(unicodedata.category(sign) == "Cc" for sign in path):
        raise _refused(path, "it contains control characters")
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise _refused(path, "it is not valid Unicode") from None
    names = path.split("/")
    if len(encoded) > MAX_PATH_BYTES or len(names) > MAX_DEPTH:
        raise _refused(path, f"at most {MAX_PATH_BYTES} bytes and {MAX_DEPTH} levels are allowed")
    for name in names:
        _check_name(path, name)
    return path


def is_allowed(path: str) -> bool:
    """Tell whether `check_path` accepts `path`."""
    try:
        check_path(path)
    except InvalidArgument:
        return False
    return True


def is_harmless(path: str) -> bool:
    """Tell whether a path that came in with a push may be written to disk at all."""
    names = path.split("/")
    return not any(n in ("", ".", "..") or _is_git_folder(n) for n in names) and "\0" not in path


def resolve_inside(root: Path, path: str) -> Path:
    """Return the absolute place of `path` under `root`.

    For people and tools that want a file name; code in this package opens files relative to
    directory handles, because a folder may become a link after this check.

    Raises:
        InvalidArgument: as `check_path`, or a part of the path is a symbolic link.
    """
    check_path(path)
    place = root
    for name in path.split("/"):
        place = place / name
        try:
            mode = os.lstat(place).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(mode):
            link = place.relative_to(root).as_posix()
            raise _refused(path, f"{link} is a symbolic link; replace it with a file or folder")
    return place


def _check_name(path: str, name: str) -> None:
    if not name:
        raise _refused(path, "it has an empty part (a doubled or trailing /)")
    if name in (".", ".."):
        raise _refused(path, f"{name!r} is not allowed; name the file from the top of the memory")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise _refused(path, f"a name may have at most {MAX_NAME_BYTES} bytes")
    if _is_git_folder(name):
        raise _refused(path, "git's own folder cannot be part of a memory")
    if _as_other_systems_see(name) in _RESERVED:
        raise _refused(path, f"{name} steers git itself and cannot be written here")


def _is_git_folder(name: str) -> bool:
    seen = _as_other_systems_see(name)
    return seen == ".git" or seen.startswith("git~")


def _as_other_systems_see(name: str) -> str:
    """Fold a name as Windows and macOS do: `.GIT `, `.git::$x` and `.g<U+200C>it` open `.git`."""
    visible = "".join(c for c in name if unicodedata.category(c) != "Cf")
    folded = unicodedata.normalize("NFKC", visible).casefold()
    return folded.split(":", 1)[0].rstrip(" .")


def _refused(path: str, why: str) -> InvalidArgument:
    shown = path if len(path) <= 120 else path[:117] + "..."
    return InvalidArgument(f"The path {shown!r} cannot be used: {why}.")
