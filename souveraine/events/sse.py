"""Server-sent events as bytes: the framing only; what the frames say is the wire packages' matter.

`/v1` uses `data_frame`, `error_frame` and `DONE` (an `event: message` line makes the official
client deliver nothing); `/api` uses `named_frame`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
DONE = b"data: [DONE]\n\n"
COMMENT_PING = b": ping\n\n"

_LINE_ENDS = re.compile(rb"\r\n|\r|\n")
# Line ends for readers that split decoded text with str.splitlines(). Inside JSON they can only
# stand in strings, where the escape means the same.
_UNICODE_LINE_ENDS = {
    b"\xc2\x85": b"\\u0085",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}


class Frame(NamedTuple):
    """One decoded event: its name ("" when unnamed), data, and id ("" when none)."""

    event: str
    data: str
    id: str


def data_frame(json_text: bytes) -> bytes:
    """Encode one JSON text as an unnamed event.

    Line breaks between JSON tokens become several `data:` lines, which decode to the same JSON.
    """
    for raw, escaped in _UNICODE_LINE_ENDS.items():
        if raw in json_text:
            json_text = json_text.replace(raw, escaped)
    if b"\n" in json_text or b"\r" in json_text:
        json_text = _LINE_ENDS.sub(b"\ndata: ", json_text)
    return b"data: " + json_text + b"\n\n"


def error_frame(json_text: bytes) -> bytes:
    """Encode a JSON text as an `error` event, on which the Letta clients raise."""
    return named_frame("error", json_text)


def named_frame(event: str, json_text: bytes, event_id: int | str | None = None) -> bytes:
    """Encode a JSON text as a named event, with an `id:` line when `event_id` is given.

    Raises ValueError when the name or the id would break the framing.
    """
    lines = f"event: {event}\n" if event_id is None else f"id: {event_id}\nevent: {event}\n"
    if len(lines.splitlines()) != (1 if event_id is None else 2) or "\0" in lines:
        raise ValueError(f"event name {event!r} and id {event_id!r} must be single lines")
    return lines.encode() + data_frame(json_text)


def decode(stream: bytes) -> list[Frame]:
    """Decode complete events as the WHATWG says; comments and an open tail are left out."""
    frames: list[Frame] = []
    event, event_id, data = "", "", list[str]()
    for line in re.split(r"\r\n|\r|\n", stream.decode("utf-8"))[:-1]:
        if not line:
            if data:
                frames.append(Frame(event, "\n".join(data), event_id))
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id":
            event_id = value
    return frames
