"""When a write becomes a commit."""

from __future__ import annotations

import enum


class CommitMode(enum.Enum):
    """COMMIT: each write is a commit. DEFERRED: writes stay in the work tree until
    `commit_pending`. FILES: no commits. A later change of mode loses nothing: the next use in
    COMMIT takes everything up."""

    COMMIT = "commit"
    DEFERRED = "deferred"
    FILES = "files"
