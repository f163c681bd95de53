"""`python -m souveraine.supervisor.health`: exit 0 when the server here answers; for containers.

Light, since it runs every few seconds: neither Django nor the configuration file is read.
"""

from __future__ import annotations

import os
import sys

from souveraine.supervisor.listen import is_healthy

TIMEOUT_SECONDS = 4.0


def main() -> int:
    """Ask once, at the address of the environment."""
    host = os.environ.get("SOUVERAINE_HOST", "127.0.0.1")
    port = int(os.environ.get("SOUVERAINE_PORT", "8283"))
    return 0 if is_healthy(host, port, TIMEOUT_SECONDS) else 1


if __name__ == "__main__":
    sys.exit(main())
