"""Takes a model's reasoning out of its answer when it writes it as `<think>…</think>` in the text.

The rule, chosen so that nothing a person wants to read as text is taken away:

- `<think>` or `<thinking>`, in any case and without attributes, opens reasoning only at the start of
  the answer or of a line (behind at most three spaces), and neither in a fenced code block nor in
  inline code that goes over several lines. In the middle of a line it is text.
- Reasoning lasts until the closing tag of the same name, wherever that stands; an unclosed one lasts
  until the end. A closing tag without an opening one is text: what came before it has been sent.
- White space around the tags goes with them; everything else comes out once and in order, however
  the text was cut into chunks.
"""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["text", "reasoning"]
Piece = tuple[Kind, str]

_NAMES = ("think", "thinking")
_OPEN_TAGS = tuple(f"<{name}>" for name in _NAMES)
_OPEN = re.compile(rf"\s*<((?ai:{'|'.join(_NAMES)}))>")
_CLOSE = {name: re.compile(rf"</(?ai:{name})>") for name in _NAMES}
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_TICKS = re.compile(r"`+")
_MAX_INDENT = 3  # in Markdown, four spaces make a code block


class _Lines:
    """Follows the text line by line: are we in a code block, or in inline code."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._fence = ""
        self._ticks = 0  # length of the run of backticks that opened inline code

    def add(self, text: str) -> None:
        """Take some of the present line, without its end."""
        self._line.append(text)

    def end(self) -> None:
        """Take the end of the line."""
        line, self._line = "".join(self._line).rstrip("\r"), []
        if self._fence:
            bare = line.strip(" \t")
            indent = len(line) - len(line.lstrip(" "))
            is_run = bare == self._fence[0] * len(bare) and len(bare) >= len(self._fence)
            if is_run and indent <= _MAX_INDENT:
                self._fence = ""
            return
        opened = _FENCE.match(line)
        if opened:
            self._fence, self._ticks = opened[1], 0
        elif not line.strip():
            self._ticks = 0  # inline code ends with its paragraph
        else:
            for run in _TICKS.findall(line):
                self._ticks = {0: len(run), len(run): 0}.get(self._ticks, self._ticks)

    @property
    def is_plain(self) -> bool:
        """Whether a tag at the start of the next line would be one."""
        return not self._fence and not self._ticks


class ThinkTagSplitter:
    """Splits one answer, given in chunks, into text and reasoning. Not for several answers."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._held = ""  # not decided yet
        self._name = ""  # of the open tag; empty in text
        # What precedes the held characters: the start of the answer, a line, a tag; or a line's
        # middle.
        self._place: Literal["answer", "line", "opened", "closed", "middle"] = "answer"
        self._out: list[Piece] = []

    def feed(self, chunk: str) -> list[Piece]:
        """Give what a chunk decides, neighbours of one kind joined. May hold some characters."""
        rest = self._held + chunk
        self._held = ""
        while rest:
            rest = self._reason(rest) if self._name else self._text(rest)
        return self._taken()

    def end(self) -> list[Piece]:
        """Give what is still held. What comes after it continues at the same place."""
        held, self._held = self._held, ""
        if self._name:
            self._emit("reasoning", held)
            return self._taken()
        if self._place == "closed":
            held = _behind_tag(held)
        while held:
            self._place = "middle"
            held = self._text(held)
        return self._taken()

    def _taken(self) -> list[Piece]:
        out, self._out = self._out, []
        return out

    def _emit(self, kind: Kind, text: str) -> None:
        if not text:
            return
        if self._out and self._out[-1][0] == kind:
            text = self._out.pop()[1] + text
        self._out.append((kind, text))

    def _text(self, rest: str) -> str:
        """Take some of the answer's text; give what is left for the next step."""
        if self._place == "middle":
            line, newline, rest = rest.partition("\n")
            self._say(line + newline)
            return rest
        opened = _OPEN.match(rest)
        if opened and self._may_indent(rest[: opened.start(1) - 1]):
            self._name, self._place = opened[1].lower(), "opened"
            return rest[opened.end() :]
        if self._may_open(rest):
            self._held = rest
            return ""
        if self._place == "closed":
            rest = _behind_tag(rest)
        self._place = "middle"
        return rest

    def _may_indent(self, space: str) -> bool:
        return self._place != "line" or (len(space) <= _MAX_INDENT and not space.strip(" "))

    def _may_open(self, start: str) -> bool:
        bare = start.lstrip()
        is_begun = any(tag.startswith(bare.lower()) for tag in _OPEN_TAGS)
        return is_begun and self._may_indent(start[: len(start) - len(bare)])

    def _say(self, text: str) -> None:
        """Give out text, of which a line end can only be the last character."""
        self._emit("text", text)
        self._lines.add(text.removesuffix("\n"))
        self._place = "middle"
        if text.endswith("\n"):
            self._lines.end()
            self._place = "line" if self._lines.is_plain else "middle"

    def _reason(self, rest: str) -> str:
        """Take some reasoning; give what is left for the next step."""
        if self._place == "opened":
            rest = rest.lstrip()
            if not rest:
                return ""
            self._place = "middle"
        closed = _CLOSE[self._name].search(rest)
        if closed:
            self._emit("reasoning", rest[: closed.start()].rstrip())
            self._name, self._place = "", "closed"
            return rest[closed.end() :]
        kept = len(rest[: len(rest) - _begun(rest, f"</{self._name}>")].rstrip())
        self._emit("reasoning", rest[:kept])
        self._held = rest[kept:]
        return ""


def _begun(text: str, tag: str) -> int:
    """Give how many characters at the end of a text are the beginning of a tag."""
    longest = min(len(tag) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text[-n:].lower() == tag[:n]), 0)


def _behind_tag(text: str) -> str:
    """Give a text without the blank lines before it; the indent of its first line stays."""
    bare = text.lstrip()
    space = text[: len(text) - len(bare)]
    return (space.rpartition("\n")[2] if "\n" in space else "") + bare
