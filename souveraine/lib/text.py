"""The one gate for text that enters storage: NUL and lone surrogates are refused, with their place.

PostgreSQL refuses NUL, UTF-8 refuses lone surrogates; found late, either is a 500 after half the work.
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
