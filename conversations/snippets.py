"""The part of a text that shows why it was found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SNIPPET_CHARS = 240
LEAD_CHARS = 60  # shown before the first match
SCANNED_CHARS = 100_000
MAX_MATCHES = 2000
_STEM_CHARS = 3  # endings differ (running, runs), so a word matches by its beginning


@dataclass(frozen=True)
class Snippet:
    """`position` counts characters from the start of the text to the match; None: nothing matches by words."""

    text: str
    position: int | None


def snippet_of(text: str, words: Sequence[str]) -> Snippet:
    """Return the stretch with the most different words of the query, cut at words."""
    stems = [re.escape(w[: max(_STEM_CHARS, len(w) - _STEM_CHARS)]) for w in words]
    matches: list[tuple[int, str]] = []
    if stems:
        pattern = re.compile(rf"\b(?:{'|'.join(stems)})", re.IGNORECASE)
        for match in pattern.finditer(text, 0, SCANNED_CHARS):
            matches.append((match.start(), match[0].lower()))
            if len(matches) == MAX_MATCHES:
                break
    if not matches:
        return Snippet(_cut(text, 0), None)
    position = _densest(matches)
    return Snippet(_cut(text, max(0, position - LEAD_CHARS)), position)


def _densest(matches: Sequence[tuple[int, str]]) -> int:
    """Return where the window with the most different words begins; the first one of several."""
    best, best_count, end = matches[0][0], 0, 0
    for index, (start, _) in enumerate(matches):
        end = max(end, index)
        while end < len(matches) and matches[end][0] < start + SNIPPET_CHARS - LEAD_CHARS:
            end += 1
        count = len({word for _, word in matches[index:end]})
        if count > best_count:
            best, best_count = start, count
    return best


def _cut(text: str, start: int) -> str:
    """Return SNIPPET_CHARS from `start`, moved to the beginning of a word, with marks where text is left out."""
    if start > 0:
        space = text.find(" ", start, start + LEAD_CHARS)
        start = space + 1 if space != -1 else start
    end = start + SNIPPET_CHARS
    piece = " ".join(text[start:end].split())
    return f"{'…' if start > 0 else ''}{piece}{'…' if end < len(text) else ''}"
