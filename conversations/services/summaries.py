"""Texts of compaction: what the summarising model reads, and the summary that needs no model.

Pure functions of rows; every text has an upper bound, so summaries of summaries do not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conversations.models import Message
from souveraine.lib.prompts import load_prompt

PROMPTS = Path(__file__).resolve().parent.parent / "prompts"
SUMMARISE = load_prompt(PROMPTS / "summarise.md")
SUMMARISE_SELF = load_prompt(PROMPTS / "summarise_self.md")
ACKNOWLEDGEMENT = load_prompt(PROMPTS / "acknowledgement.md")
IN_WINDOW = load_prompt(PROMPTS / "summary_in_window.md")
FALLBACK = load_prompt(PROMPTS / "fallback_summary.md")

LEAST_EXCERPT_CHARS = 60
PREVIOUS_SHARE = 0.5  # of a fallback summary is what the summary before it said, at most
REQUEST_SHARE = 0.3  # of a summary is the request that the agent still works on, at most
SPOKEN = (Message.Role.USER, Message.Role.ASSISTANT, Message.Role.SYSTEM)
_ELLIPSIS = " […]"


def clip(text: str, limit_chars: int) -> str:
    """Cut a text to `limit_chars`, at the end of a sentence or word where one is near."""
    if len(text) <= limit_chars:
        return text
    kept = text[: max(limit_chars - len(_ELLIPSIS), 0)]
    for mark in ("\n", ". ", " "):
        place = kept.rfind(mark)
        if place > len(kept) * 0.8:
            kept = kept[: place + len(mark.rstrip())]
            break
    return (kept + _ELLIPSIS)[:limit_chars]


def _line(row: Message) -> str:
    calls = "".join(f" [calls {c['name']}({c['arguments']})]" for c in row.tool_calls)
    who = f"tool {row.name} ({row.status})" if row.role == Message.Role.TOOL else row.role
    return f"{who}: {' '.join(row.text.split())}{calls}"


def common_length(lengths: Sequence[int], limit: int) -> int:
    """Return the length to which each is to be cut so that all together are within `limit`."""
    left, count = limit, len(lengths)
    for length in sorted(lengths):
        if length * count > left:
            return left // count
        left, count = left - length, count - 1
    return max(lengths, default=0)


def excerpts(rows: Sequence[Message], limit_chars: int) -> str:
    """Return the rows as lines of a transcript, oldest first, within `limit_chars`.

    Long ones are shortened first; when that does not do, the oldest are left out, and told.
    """
    lines = [_line(row) for row in rows]
    most = max(limit_chars // (LEAST_EXCERPT_CHARS + 1), 1)
    left_out = len(lines) - most
    note = f"[{left_out} earlier messages are left out]\n" if left_out > 0 else ""
    lines = lines[max(left_out, 0) :]
    level = common_length([len(line) + 1 for line in lines], limit_chars - len(note))
    return (note + "\n".join(clip(line, max(level - 1, 1)) for line in lines))[:limit_chars]


def transcript(previous: Message | None, rows: Sequence[Message], limit_chars: int) -> str:
    """Return what the summarising model is given: the summary so far, then the rows."""
    head = f"Summary so far:\n{clip(previous.text, limit_chars // 2)}\n\n" if previous else ""
    return f"{head}Messages:\n{excerpts(rows, limit_chars - len(head))}"


def fallback_summary(previous: Message | None, rows: Sequence[Message], limit_chars: int) -> str:
    """Return a summary without a model: the start of the one before, then excerpts of what was said."""
    head = f"{clip(previous.text, int(limit_chars * PREVIOUS_SHARE))}\n\n" if previous else ""
    spoken = [row for row in rows if row.role in SPOKEN and row.text.strip()]
    values = {
        "count": len(rows),
        "first_date": f"{rows[0].created_at:%Y-%m-%d}",
        "last_date": f"{rows[-1].created_at:%Y-%m-%d}",
    }
    frame = len(FALLBACK.render(**values, excerpts=""))
    room = max(limit_chars - len(head) - frame, 0)
    body = FALLBACK.render(**values, excerpts=excerpts(spoken, room) if spoken else "")
    return clip(f"{head}{body}".strip(), limit_chars)


def with_request(text: str, request: str, limit_chars: int) -> str:
    """Bound a summary that also stands for the person's message which the agent is still answering.

    That message is kept word for word, as far as there is room.
    """
    kept = clip(request, int(limit_chars * REQUEST_SHARE))
    tail = f"\n\nThe request being worked on, in the person's words:\n{kept}"
    return clip(text, limit_chars - len(tail)) + tail
