"""Which file is which block: labels to paths and back.

Normally only `system/**.md` are blocks and the label is the path without folder and suffix.
Agents that keep their memory with git (`git_memory`) see every `*.md` path as a label.
"""

from __future__ import annotations

from memfs.paths import check_path
from souveraine.errors import InvalidArgument

SUFFIX = ".md"
SYSTEM = "system/"
SKILLS = "skills/"
SKILL_FILE = "/SKILL.md"


def label_to_path(label: str, git_memory: bool) -> str:
    """Return the path of the block `label`. Raises InvalidArgument if no file can have it."""
    if not git_memory:
        path = f"{SYSTEM}{label}{SUFFIX}"
    elif label.startswith(SKILLS):
        path = f"{label}{SKILL_FILE}"
    else:
        path = f"{label}{SUFFIX}"
    if path_to_label(path, git_memory) != label:
        raise InvalidArgument(
            f"The label {label[:120]!r} cannot be a memory file. Use a name such as persona or "
            "a path such as projects/garden."
        )
    return check_path(path)


def path_to_label(path: str, git_memory: bool) -> str | None:
    """Return the label of the block in the file `path`, None when the file is no block."""
    label = _label(path, git_memory)
    return None if label is None or not label.rpartition("/")[2] else label


def lookup_paths(label: str, git_memory: bool) -> tuple[str, ...]:
    """Return where to look for `label`, best first: both ways to write a label are accepted."""
    given = [(label, git_memory)]
    if git_memory:
        given.append((f"{SYSTEM}{label}", True))
    elif label.startswith(SYSTEM):
        given.append((label.removeprefix(SYSTEM), False))
    paths: dict[str, None] = {}
    for form, mode in given:
        try:
            paths[label_to_path(form, mode)] = None
        except InvalidArgument:
            continue
    return tuple(paths)


def is_pinned(path: str) -> bool:
    """Tell whether the block in `path` belongs into the prompt: everything below `system/`."""
    return path.startswith(SYSTEM) and path.endswith(SUFFIX)


def _label(path: str, git_memory: bool) -> str | None:
    if not path.endswith(SUFFIX):
        return None
    if not git_memory:
        return path[len(SYSTEM) : -len(SUFFIX)] if path.startswith(SYSTEM) else None
    if path.startswith(SKILLS):
        folder = path.removesuffix(SKILL_FILE)
        return folder if folder != path and folder.count("/") == 1 else None
    return path.removesuffix(SUFFIX)
