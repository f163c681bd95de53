"""The kinds of jobs by name. Each part of the server registers its own when its app is ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from agents.models import Job


class JobContext(Protocol):
    """What a handler gets."""

    @property
    def job(self) -> Job: ...

    def progress(self, done: int, total: int) -> None:
        """Tell how far the job is, between steps: ends the handler when it was cancelled or has lost its lease."""

    def hold(self) -> None:
        """Lock the job inside the caller's transaction, so that what it writes is written by one worker only."""


@dataclass(frozen=True)
class JobKind:
    """`run(context)` does the work and returns what to add to the job's metadata; it may begin anew after a
    crash, so what it has done must not harm. Raise a SouveraineError to fail with its text.

    `gave_up(job, reason)` tidies up after a job that was cancelled or has failed, inside that transaction.
    Of a kind that `is_one_per_subject` none begins while another runs for the same subject.
    """

    name: str
    run: Callable[[JobContext], dict[str, Any] | None]
    gave_up: Callable[[Job, str], None] | None = None
    is_one_per_subject: bool = False


_KINDS: dict[str, JobKind] = {}


def register(*kinds: JobKind) -> None:
    """Add kinds of jobs."""
    for kind in kinds:
        _KINDS[kind.name] = kind


def kind_of(name: str) -> JobKind | None:
    """Return the kind of that name."""
    return _KINDS.get(name)


def one_per_subject() -> list[str]:
    """Return the names of the kinds that run once at a time for each subject."""
    return [name for name, kind in _KINDS.items() if kind.is_one_per_subject]
