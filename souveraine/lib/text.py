"""The one gate for text that enters storage: NUL and lone surrogates.

PostgreSQL refuses NUL, UTF-8 refuses lone surrogates; found late, either is a 500 after half the work.
What a caller sends is refused, with its place; what a model or a file brings is cleaned.
"""

from __future__ import annotations

from typing import Any


def bad_text_place(value: Any, place: str = "body") -> str | None:
    """Return where `value` (any JSON) holds text that cannot be stored, or None. Iterative: depth is free."""
    stack: list[tuple[Any, str]] = [(value, place)]
    while stack:
        item, where = stack.pop()
        if isinstance(item, str):
            if "\x00" in item:
                return f"{where}: the text holds a NUL character (U+0000)"
            if not item.isascii() and any("\ud800" <= char <= "\udfff" for char in item):
                return f"{where}: the text holds a lone surrogate (half of a UTF-16 pair)"
        elif isinstance(item, dict):
            for key, inner in item.items():
                stack.append((key, f"{where} key"))
                stack.append((inner, f"{where}.{key}" if len(where) < 200 else where))
        elif isinstance(item, list):
            stack.extend((inner, f"{where}[{index}]") for index, inner in enumerate(item))
    return None


def clean_text(text: str) -> str:
    """Return `text` as it can be stored: surrogate pairs joined, lone halves and NUL replaced by U+FFFD."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_json(value: Any) -> Any:
    """Return `value` (any JSON, as deep as a parser makes it) with all its texts cleaned."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [clean_json(inner) for inner in value]
    return value


class TextJoiner:
    """Cleans text that comes in pieces: half an emoji at the end of a piece waits for the next one."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be said now."""
        text, self._held = self._held + piece, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return clean_text(text)

    def end(self) -> str:
        """Return what was still held."""
        held, self._held = self._held, ""
        return clean_text(held)
