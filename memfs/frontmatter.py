"""YAML front matter of a block's file: who it is, how long it may be, and then its exact value.

What is written here is read back unchanged to the byte. What a person wrote by hand is never
refused: if it cannot be understood, the whole text is the value and a warning says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import yaml

from memfs.blocks import path_to_label
from souveraine.errors import InvalidArgument
from souveraine.lib.text import bad_text_place, clean_text

MAX_FRONT_MATTER_CHARS = 64 * 1024  # the parser is slow, and nobody describes a block longer
MAX_DEPTH = 40  # levels of lists and mappings
MAX_LIMIT_CHARS = 2_000_000_000  # what a database integer holds

_FRAME = re.compile(r"---[ \t]*\r?\n(?P<inside>(?:[^\n]*\n)*?)---[ \t]*(?:\r?\n|\Z)")
_OWN_KEYS = ("id", "description", "limit", "read_only", "metadata")
# what PyYAML's constructors raise on values that look like a date, number or tag but are none
_BAD_YAML = (
    yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError,
    RecursionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BlockFile:
    """A block as its file holds it. `limit` in characters, None = unlimited.

    `extra` keeps other keys of the front matter (a skill's `name`, for example) for rewriting.
    """

    label: str
    value: str
    id: str | None = None
    description: str | None = None
    limit: int | None = None
    read_only: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """Safe loading without references, a few of which can stand for gigabytes, or deep nesting."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("references (*name) are not allowed")
        if self._depth > MAX_DEPTH:
            raise yaml.YAMLError(f"more than {MAX_DEPTH} levels are not allowed")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Never writes references, which the loader refuses; quotes what YAML would change."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # only this style escapes every sign; the others fold line ends and lose spaces
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def render_block_file(block: BlockFile) -> str:
    """Return the file's text: front matter with what is set, then the value exactly.

    Raises InvalidArgument when the front matter would be too long to be read back.
    """
    front: dict[str, Any] = {}
    if block.id is not None:
        front["id"] = block.id
    if block.description is not None:
        front["description"] = block.description
    if block.limit:
        front["limit"] = block.limit
    if block.read_only:
        front["read_only"] = True
    if block.metadata:
        front["metadata"] = dict(block.metadata)
    front |= {key: value for key, value in block.extra.items() if key not in _OWN_KEYS}
    inside = ""
    if front:
        inside = yaml.dump(front, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9)
    if len(inside) > MAX_FRONT_MATTER_CHARS:
        raise InvalidArgument(
            f"Description and metadata of {block.label} take {len(inside)} characters; "
            f"{MAX_FRONT_MATTER_CHARS} are possible. Shorten them."
        )
    return f"---\n{inside}---\n{block.value}"


def parse_block_file(
    path: str, text: str, git_memory: bool = False
) -> tuple[BlockFile, str | None]:
    """Return the block in the file `path`, and a warning for people or None. Never raises.

    A file that is no block (`path_to_label`) gets its path as label.
    """
    label = path_to_label(path, git_memory) or path
    if not re.match(r"---[ \t]*\r?\n", text):
        return BlockFile(label, text), None
    frame = _FRAME.match(text)
    if frame is None or len(frame["inside"]) > MAX_FRONT_MATTER_CHARS:
        return _raw(label, text, "the front matter has no closing --- line or is too long")
    try:
        front = yaml.load(frame["inside"], Loader=_Loader)  # noqa: S506 - derives from SafeLoader
    except _BAD_YAML as error:
        return _raw(label, text, f"the front matter is not valid YAML ({_short(error)})")
    if front is None:
        front = {}
    if not isinstance(front, dict):
        return _raw(label, text, "the front matter is not a list of `key: value` lines")
    return _block(label, text[frame.end() :], front)


def _block(label: str, value: str, front: dict[Any, Any]) -> tuple[BlockFile, str | None]:
    ignored: list[str] = []

    def take(key: str, kind: type) -> Any:
        found = front.get(key)
        if found is None or (isinstance(found, kind) and (kind is bool) == isinstance(found, bool)):
            return found
        ignored.append(key)
        return None

    identity, read_only, metadata = take("id", str), take("read_only", bool), take("metadata", dict)
    description, limit = front.get("description"), take("limit", int)
    if limit is not None and not 0 <= limit <= MAX_LIMIT_CHARS:
        ignored.append("limit")
        limit = None
    metadata, extra = _plain(metadata or {}), {k: v for k, v in front.items() if k not in _OWN_KEYS}
    if not _is_json(metadata):
        ignored.append("metadata")
        metadata = {}
    block = BlockFile(
        label=label,
        value=value,
        id=identity,
        description=None if description is None else clean_text(str(description)),
        limit=limit or None,
        read_only=bool(read_only),
        metadata=metadata,
        extra=_plain(extra),
    )
    if not ignored:
        return block, None
    return block, f"{label}: ignored in the front matter, wrong kind of value: {', '.join(ignored)}"


def _plain(value: Any) -> Any:
    """Turn YAML's dates, sets, bytes and odd keys into what JSON can hold."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner) for inner in value]
    if isinstance(value, date):  # datetime is one too
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return value


def _is_json(value: Any) -> bool:
    """Tell whether databases can hold the value as JSON: no NaN, no half surrogates, no NUL."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return bad_text_place(value) is None


def _raw(label: str, text: str, why: str) -> tuple[BlockFile, str]:
    return BlockFile(label, text), f"{label}: {why}; the whole file is taken as the value"


def _short(error: BaseException) -> str:
    return str(getattr(error, "problem", None) or error or type(error).__name__)[:200]
