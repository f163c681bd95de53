"""Searching texts by a regular expression that a model wrote: RE2, whose time grows with the text only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

import re2

MAX_PATTERN_CHARS = 1000
MAX_LINE_CHARS = 500  # shown of one line
DEADLINE_SECONDS = 20.0
LINES_BETWEEN_LOOKS = 2000  # at the clock


class BadPattern(ValueError):
    """The pattern is no regular expression that can be searched for."""


class TookTooLong(TimeoutError):
    """The texts could not be searched within the deadline."""


@dataclass(frozen=True)
class Match:
    """One matching line with those around it: (number from 1, text, whether it matches)."""

    name: str
    line: int
    around: list[tuple[int, str, bool]]


def compiled(pattern: str) -> re2._Regexp:
    """Compile a pattern. Raises BadPattern."""
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"The pattern must have 1 to {MAX_PATTERN_CHARS} characters.")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as exc:
        reason = exc.args[0].decode() if isinstance(exc.args[0], bytes) else exc.args[0]
        raise BadPattern(
            f"This pattern cannot be searched for ({reason}). Look-around and back-references are not "
            "supported; put a backslash before special characters that you mean literally."
        ) from None


def is_included(name: str, include: str | None) -> bool:
    """Tell whether a file's name (`folder/name`) is among those to search, by a pattern like `*.py`."""
    if not include:
        return True
    lower, wanted = name.lower(), include.lower()
    return fnmatchcase(lower, wanted) or fnmatchcase(lower.rpartition("/")[2], wanted)


def matches(
    texts: Iterable[tuple[str, str]], pattern: str, context_lines: int = 0
) -> Iterator[Match]:
    """Give the matches in (name, text) pairs in order. Raises BadPattern and TookTooLong."""
    regexp = compiled(pattern)
    deadline = time.monotonic() + DEADLINE_SECONDS
    for name, text in texts:
        lines = text.split("\n")
        for index, line in enumerate(lines):
            if index % LINES_BETWEEN_LOOKS == 0 and time.monotonic() > deadline:
                raise TookTooLong
            if regexp.search(line):
                yield Match(name, index + 1, _around(lines, index, context_lines))


def _around(lines: list[str], index: int, context_lines: int) -> list[tuple[int, str, bool]]:
    first = max(0, index - context_lines)
    return [
        (number + 1, _short(lines[number]), number == index)
        for number in range(first, min(len(lines), index + context_lines + 1))
    ]


def _short(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…"
