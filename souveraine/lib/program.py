"""How a person calls this program here: for hints in messages, which must work when copied."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAME = "souveraine"
ROOT = Path(__file__).resolve().parents[2]


def is_checkout(root: Path = ROOT) -> bool:
    """Tell whether the code runs from a checkout rather than from an installed copy."""
    return (root / "manage.py").is_file()


def command_line(command: str, root: Path = ROOT) -> str:
    """Return what to type for a management command: `souveraine createkey` where it is on PATH."""
    if is_checkout(root):
        return f"{sys.executable} manage.py {command}"
    program = NAME if shutil.which(NAME) else str(Path(sys.executable).with_name(NAME))
    return f"{program} {command}"


def program_name(root: Path = ROOT) -> str:
    """Return `manage.py` or `souveraine`, without paths: for texts that remote callers see."""
    return "manage.py" if is_checkout(root) else NAME
