"""The `souveraine` command of an installed copy; in a checkout `manage.py` calls the same `main`."""

from __future__ import annotations

import os
import sys
import textwrap

import django
from django.core.management import execute_from_command_line, get_commands, load_command_class

from souveraine import __version__

OWN_APPS = ("souveraine", "agents", "conversations")


def main() -> None:
    """Run a management command (`serve`, `check`, `createkey`, …) on Souveraine's settings.

    An explicit DJANGO_SETTINGS_MODULE is respected.
    """
    if sys.argv[1:] in (["version"], ["--version"]):  # Django would tell its own
        print(f"souveraine {__version__}")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "souveraine.settings")
    if sys.argv[1:] in ([], ["help"], ["-h"], ["--help"]):
        print(_overview())
        return
    execute_from_command_line(sys.argv)


def _overview() -> str:
    """List Souveraine's own commands; Django's stay reachable by `help --commands`."""
    django.setup()
    own = [(name, app) for name, app in sorted(get_commands().items()) if app in OWN_APPS]
    lines = [
        textwrap.fill(
            str(load_command_class(app, name).help),
            width=96,
            initial_indent=f"  {name:<16}",
            subsequent_indent=" " * 18,
        )
        for name, app in own
    ]
    program = os.path.basename(sys.argv[0])
    return "\n".join(
        [
            f"souveraine {__version__}",
            f"Usage: {program} COMMAND [OPTIONS]; {program} help COMMAND tells a command's options.",
            "",
            *lines,
            "  version         Tell the version.",
            "",
            f"Django's own commands (migrate, shell, dumpdata, …): {program} help --commands",
        ]
    )


if __name__ == "__main__":
    main()
