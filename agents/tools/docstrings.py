"""Reading a tool's docstring: what it does, and what each argument means. Google, NumPy and reST forms."""

from __future__ import annotations

import inspect
import re

ARGUMENTS = frozenset({"args", "arguments", "parameters", "params", "keyword args"})
SECTIONS = frozenset(
    {"returns", "return", "raises", "yields", "example", "examples", "note", "notes", "see also"}
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?$")
_REST_ENTRY = re.compile(r":param(?:eter)?\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_REST_FIELD = re.compile(r":(\w+)[^:]*:")


def read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the description, without its argument list, and {argument: what it means}."""
    description: list[str] = []
    arguments: dict[str, str] = {}
    lines = inspect.cleandoc(docstring).splitlines()
    position = 0
    while position < len(lines):
        line = lines[position]
        if _REST_FIELD.match(line.strip()):
            position = _rest_field(lines, position, arguments)
        elif _is_argument_section(lines, position):
            position = _argument_section(lines, position + 1, arguments)
        else:
            description.append(line)
            position += 1
    return "\n".join(description).strip(), arguments


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_underline(line: str) -> bool:
    return len(line.strip()) >= 3 and set(line.strip()) == {"-"}


def _is_argument_section(lines: list[str], position: int) -> bool:
    """Tell whether a section of arguments begins here: `Args:`, or `Parameters` underlined."""
    name = lines[position].strip().lower()
    following = lines[position + 1] if position + 1 < len(lines) else ""
    return name.rstrip(":") in ARGUMENTS and (name.endswith(":") or _is_underline(following))


def _argument_section(lines: list[str], position: int, arguments: dict[str, str]) -> int:
    """Read the entries into `arguments`; returns where the section ends."""
    is_numpy = position < len(lines) and _is_underline(lines[position])
    position += is_numpy
    level: int | None = None
    name = ""
    while position < len(lines):
        line = lines[position]
        text = line.strip()
        if text and level is None:
            level = _indent(line)
        if text and level is not None and _ends_section(lines, position, level, is_numpy):
            break
        entry = _entry(line, level, is_numpy) if text else None
        if entry is not None:
            name, arguments[entry[0]] = entry
        elif text and name:
            arguments[name] = f"{arguments[name]} {text}".strip()
        position += 1
    return position


def _ends_section(lines: list[str], position: int, level: int, is_numpy: bool) -> bool:
    line = lines[position]
    if is_numpy:
        return position + 1 < len(lines) and _is_underline(lines[position + 1])
    is_section = line.strip().rstrip(":").lower() in SECTIONS and line.strip().endswith(":")
    return _indent(line) < level or (is_section and _indent(line) <= level)


def _entry(line: str, level: int | None, is_numpy: bool) -> tuple[str, str] | None:
    if _indent(line) != level:
        return None
    found = (_NUMPY_ENTRY if is_numpy else _GOOGLE_ENTRY).match(line.strip())
    if found is None:
        return None
    return found[1], "" if is_numpy else found[2].strip()


def _rest_field(lines: list[str], position: int, arguments: dict[str, str]) -> int:
    """Read one `:param name: …`, skip any other field; both may go on in indented lines."""
    found = _REST_ENTRY.match(lines[position].strip())
    texts = [found[2].strip()] if found else []
    level = _indent(lines[position])
    position += 1
    while position < len(lines) and lines[position].strip() and _indent(lines[position]) > level:
        texts.append(lines[position].strip())
        position += 1
    if found:
        arguments[found[1]] = " ".join(texts).strip()
    return position
