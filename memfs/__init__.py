"""An agent's memory as a git repository. It knows nothing of conversations, models or HTTP."""

from __future__ import annotations

from memfs.authors import (
    API_AUTHOR,
    SYSTEM_AUTHOR,
    Author,
    AuthorKind,
    Cadence,
    agent_author,
    author_kind,
    user_author,
)
from memfs.blocks import is_pinned, label_to_path, lookup_paths, path_to_label
from memfs.frontmatter import BlockFile, parse_block_file, render_block_file
from memfs.history import CommitInfo
from memfs.maintenance import pack
from memfs.modes import CommitMode
from memfs.paths import check_path, resolve_inside
from memfs.reading import Entry
from memfs.repository import MemoryRepository

__all__ = [
    "API_AUTHOR",
    "SYSTEM_AUTHOR",
    "Author",
    "AuthorKind",
    "BlockFile",
    "Cadence",
    "CommitInfo",
    "CommitMode",
    "Entry",
    "MemoryRepository",
    "agent_author",
    "author_kind",
    "check_path",
    "is_pinned",
    "label_to_path",
    "lookup_paths",
    "pack",
    "parse_block_file",
    "path_to_label",
    "render_block_file",
    "resolve_inside",
    "user_author",
]
