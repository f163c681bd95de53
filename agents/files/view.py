"""How a part of a file is shown to an agent: numbered lines under a line that says which they are (as in Letta)."""

from __future__ import annotations

from dataclasses import dataclass

TRUNCATED = "\n...[TRUNCATED: open it from a later line, or search in it]"


@dataclass(frozen=True)
class View:
    """Lines `start` to `end` (from 1) of a file."""

    text: str
    start: int
    end: int


def view_of(text: str, limit_chars: int, offset: int = 0, length: int | None = None) -> View:
    """Show `length` lines (None: all) behind the first `offset` ones, cut at `limit_chars`."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    total = len(lines)
    shown = lines[offset:] if length is None else lines[offset : offset + length]
    last = offset + len(shown)
    whole = offset == 0 and last >= total
    head = (
        f"[Viewing file start (out of {total} lines)]"
        if whole
        else f"[Viewing lines {offset + 1} to {last} (out of {total} lines)]"
    )
    out, used, end = [head], len(head), offset
    for number, line in enumerate(shown, start=offset + 1):
        entry = f"{number}: {line}"
        if used + 1 + len(entry) > limit_chars:
            room = limit_chars - used - 1
            out.append(entry[: max(0, room)] + TRUNCATED)
            return View("\n".join(out), offset + 1, number)
        out.append(entry)
        used, end = used + 1 + len(entry), number
    return View("\n".join(out), offset + 1, max(end, offset + 1))
