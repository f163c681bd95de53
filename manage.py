#!/usr/bin/env python3
"""Entry point for operators: `serve`, `migrate`, `createkey`, `createadmin`, `check`, …"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run a Django management command against the Souveraine settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "souveraine.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
