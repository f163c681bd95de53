"""Writes that are in the work tree but in no commit yet, with the author of each.

Used when commits are deferred or switched off. The caller holds the repository lock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from memfs.authors import Author, author_kind
from memfs.layout import Layout, replace_file


@dataclass(frozen=True, slots=True)
class Note:
    """Who wrote a path last, and the blob id of what was written (None: deleted)."""

    author: Author
    blob: str | None


@dataclass(slots=True)
class Notes:
    """By path, oldest first; `everything` means that files may differ without a note."""

    everything: bool = False
    by_path: dict[str, Note] = field(default_factory=dict)


class Pending:
    """The file in which the notes lie."""

    def __init__(self, layout: Layout) -> None:
        self._path, self._new = layout.private / "pending.json", layout.private / "pending.new"

    def exists(self) -> bool:
        """Tell whether anything waits for a commit; one `stat`."""
        return self._path.exists()

    def read(self) -> Notes:
        """Return the notes; a damaged file means that everything must be looked at."""
        try:
            raw = json.loads(self._path.read_text("utf-8"))
            notes = {str(p): _note(entry) for p, entry in raw["paths"].items()}
            return Notes(bool(raw["everything"]), notes)
        except FileNotFoundError:
            return Notes()
        except (ValueError, KeyError, TypeError, AttributeError):
            return Notes(everything=True)

    def add(self, notes: dict[str, Note]) -> None:
        """Note writes before the files change, so that no crash loses their author."""
        known = self.read()
        for path, note in notes.items():
            known.by_path.pop(path, None)
            known.by_path[path] = note
        self._write(known)

    def add_everything(self) -> None:
        """Note that files change without single notes from here on."""
        if not self.exists() or not self.read().everything:
            self._write(Notes(True, self.read().by_path))

    def clear(self) -> None:
        """Forget all notes: their writes are committed."""
        self._path.unlink(missing_ok=True)

    def _write(self, notes: Notes) -> None:
        paths = {p: [n.author.name, n.author.email, n.blob] for p, n in notes.by_path.items()}
        text = json.dumps({"everything": notes.everything, "paths": paths})
        replace_file(self._path, text, self._new)


def _note(entry: Any) -> Note:
    name, email, blob = entry
    return Note(Author(str(name), str(email), author_kind(str(email))), blob)
