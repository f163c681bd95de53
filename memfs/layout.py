"""The folders and files around a memory: work tree, git directory, its configuration.

    <root>/memory.git/           work tree; `.git` in it is a file with a relative pointer
    <root>/repository/           git directory, out of reach of an agent's tools
    <root>/repository/memfs/     our lock, what the work tree shows, uncommitted writes

Every step may be repeated; `HEAD` is written last, so a git directory with HEAD is whole.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDERS = ("system", "subconscious", "journal", "skills", "archive")
MAX_PUSH_BYTES = 256 * 1024 * 1024  # a memory is text; a larger pack is a mistake or an attack
POINTER = "gitdir: ../repository\n"

# hooksPath, fsmonitor: nothing that lies in a repository may be executed.
# autocrlf, symlinks: the work tree holds the committed bytes, and links as small plain files.
# reflogs never expire: they are the way back should a branch ever be moved by mistake.
CONFIG = f"""\
[core]
\trepositoryformatversion = 0
\tbare = false
\tfilemode = true
\tlogallrefupdates = true
\tworktree = ../memory.git
\thooksPath = /dev/null
\tfsmonitor = false
\tautocrlf = false
\tsafecrlf = false
\tsymlinks = false
\tquotePath = false
[receive]
\tfsckObjects = true
\tdenyNonFastForwards = true
\tdenyDeletes = true
\tdenyCurrentBranch = ignore
\tmaxInputSize = {MAX_PUSH_BYTES}
[transfer]
\tfsckObjects = true
[gc]
\tauto = 4000
\tautoDetach = false
\treflogExpire = never
\treflogExpireUnreachable = never
[index]
\tversion = 2
[feature]
\tmanyFiles = false
"""
# Above every .gitattributes in the tree: no filter, no change of line ends or encoding.
ATTRIBUTES = "* -text -ident -filter !eol !working-tree-encoding\n"


class Layout:
    """Where the parts of one agent's memory lie."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work_tree = root / "memory.git"
        self.git_dir = root / "repository"
        self.private = self.git_dir / "memfs"
        self.lock = self.private / "lock"
        self.pointer = self.work_tree / ".git"
        self.head = self.git_dir / "HEAD"

    def make_folders(self) -> None:
        """Create what must be there before the lock can be taken. May be repeated."""
        for folder in (self.work_tree, self.private):
            folder.mkdir(parents=True, exist_ok=True)

    def complete(self) -> None:
        """Create or mend everything but commits. Call it with the lock held; may be repeated."""
        git_dir = self.git_dir
        for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (git_dir / folder).mkdir(parents=True, exist_ok=True)
        self._ensure(git_dir / "config", CONFIG)
        self._ensure(git_dir / "info" / "attributes", ATTRIBUTES)
        if not self.head.exists():
            self._ensure(self.head, "ref: refs/heads/main\n")
        self.point_to_git_dir()

    def point_to_git_dir(self) -> None:
        """Write the work tree's `.git` file anew if it is gone, or was bent or replaced."""
        if self.pointer.is_dir() and not self.pointer.is_symlink():
            return  # a repository of somebody's own; git would use it, we never look there
        self._ensure(self.pointer, POINTER)

    def has_pointer(self) -> bool:
        """Tell whether the work tree is there; without it, missing files mean nothing."""
        return os.path.lexists(self.pointer)

    def shows_main(self) -> bool:
        """Tell whether `main` is checked out; else the work tree is a person's for the time."""
        return self.head.read_text(errors="replace").strip() == "ref: refs/heads/main"

    def _ensure(self, path: Path, text: str) -> None:
        if path.is_file() and not path.is_symlink() and path.read_text(errors="replace") == text:
            return
        replace_file(path, text, self.private / "layout.new")


def replace_file(path: Path, text: str, scratch: Path) -> None:
    """Put `text` at `path` in one step, durably; `scratch` is on the same file system."""
    with scratch.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
