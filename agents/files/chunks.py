"""Cutting a text into passages: whole paragraphs as far as they fit, else lines, else words."""

from __future__ import annotations

import re
from collections.abc import Iterator

PASSAGE_CHARS = 1200  # about 300 tokens, Letta's embedding_chunk_size
_SEPARATORS = ("\n\n", "\n", " ")


def passages(text: str, size_chars: int = PASSAGE_CHARS) -> Iterator[str]:
    """Give pieces of at most `size_chars` characters in order; blank ones are left out."""
    for piece in _pieces(text, size_chars, _SEPARATORS):
        stripped = piece.strip()
        if stripped:
            yield stripped


def _pieces(text: str, size: int, separators: tuple[str, ...]) -> Iterator[str]:
    if not separators:
        yield from (text[at : at + size] for at in range(0, len(text), size))
        return
    held = ""
    for part in _parts(text, separators[0]):
        if len(held) + len(part.rstrip()) <= size:
            held += part
            continue
        yield held
        held = ""
        if len(part.rstrip()) <= size:
            held = part
        else:
            yield from _pieces(part, size, separators[1:])
    yield held


def _parts(text: str, separator: str) -> Iterator[str]:
    """Split behind each separator without losing it; one part at a time, for texts of many megabytes."""
    start = 0
    for found in re.finditer(re.escape(separator), text):
        yield text[start : found.end()]
        start = found.end()
    yield text[start:]
