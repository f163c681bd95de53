"""Reading the past of a memory: log and diff, with bounded cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pygit2
from pygit2.enums import SortMode

from memfs.authors import AuthorKind, author_kind
from memfs.objects import find_commit, tip_of, tree_of

MAX_WALK = 10_000  # commits looked at for one filtered log; about 0.3 s
MAX_DIFF_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One commit of a log. `at` is aware, in UTC; `parents` are commit ids."""

    id: str
    message: str
    author_name: str
    author_email: str
    author_kind: AuthorKind
    at: datetime
    parents: tuple[str, ...]


def log(
    repo: pygit2.Repository, path: str | None, limit: int, before: str | None
) -> list[CommitInfo]:
    """Return up to `limit` commits, newest first, that changed `path` (a file or folder).

    `before` is a commit id; the log goes on with its parents. With a path at most MAX_WALK
    commits are looked at, without one exactly as many as are returned.
    """
    starts = _starts(repo, before)
    if not starts or limit <= 0:
        return []
    # the other orders of libgit2 read the whole history before they give the first commit
    walker = repo.walk(starts[0], SortMode.NONE)
    for start in starts[1:]:
        walker.push(start)
    found: list[CommitInfo] = []
    for seen, commit in enumerate(walker):
        if len(found) >= limit or (path is not None and seen >= MAX_WALK):
            break
        if path is None or _changed(commit, path):
            found.append(describe(commit))
    return found


def diff(repo: pygit2.Repository, commit_id: str) -> str:
    """Return the patch of a commit against its first parent, cut at MAX_DIFF_CHARS.

    Raises NotFound.
    """
    commit = find_commit(repo, commit_id)
    if commit.parent_ids:
        parent = tree_of(repo, commit.parent_ids[0])
        changes = parent.diff_to_tree(commit.tree) if parent is not None else None
    else:
        changes = commit.tree.diff_to_tree(swap=True)
    patch = (changes.patch if changes is not None else None) or ""
    if len(patch) <= MAX_DIFF_CHARS:
        return patch
    rest = len(patch) - MAX_DIFF_CHARS
    return patch[:MAX_DIFF_CHARS] + f"\n[{rest} more characters; use git for the whole patch]\n"


def describe(commit: pygit2.Commit) -> CommitInfo:
    """Return what a log shows of a commit."""
    author = commit.author
    return CommitInfo(
        id=str(commit.id),
        message=commit.message.rstrip("\n"),
        author_name=author.name,
        author_email=author.email,
        author_kind=author_kind(author.email),
        at=datetime.fromtimestamp(commit.commit_time, UTC),
        parents=tuple(str(parent) for parent in commit.parent_ids),
    )


def _starts(repo: pygit2.Repository, before: str | None) -> list[pygit2.Oid]:
    if before is not None:
        return list(find_commit(repo, before).parent_ids)
    tip = tip_of(repo)
    return [] if tip is None else [tip]


def _changed(commit: pygit2.Commit, path: str) -> bool:
    """As git's own log: a merge counts only if it differs from every parent."""
    mine = _object_id(commit.tree, path)
    parents = commit.parents
    if not parents:
        return mine is not None
    return all(_object_id(parent.tree, path) != mine for parent in parents)


def _object_id(tree: pygit2.Tree, path: str) -> pygit2.Oid | None:
    try:
        return tree[path].id
    except KeyError:
        return None
