#!/usr/bin/env python3
"""Entry point of a checkout: `serve`, `check`, `createkey`, `createadmin`, … (installed: `souveraine`)."""

from __future__ import annotations

from souveraine.cli import main

if __name__ == "__main__":
    main()
