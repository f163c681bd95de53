"""`python -m souveraine <command>`: what the supervisor's own children are started with."""

from __future__ import annotations

from souveraine.cli import main

if __name__ == "__main__":
    main()
