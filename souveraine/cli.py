"""The `souveraine` command of an installed copy; in a checkout `manage.py` calls the same `main`."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

from souveraine import __version__


def main() -> None:
    """Run a management command (`serve`, `check`, `createkey`, …) on Souveraine's settings.

    An explicit DJANGO_SETTINGS_MODULE is respected.
    """
    if sys.argv[1:] in (["version"], ["--version"]):  # Django would tell its own
        print(f"souveraine {__version__}")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "souveraine.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
