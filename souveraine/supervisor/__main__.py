"""`python -m souveraine.supervisor <plan>`: what `manage.py serve` becomes once all is decided.

The process stays the same (its id, its lock, its listening socket), but without Django, which
would keep some 80 MB for the whole life of the server.
"""

from __future__ import annotations

import sys

from souveraine.supervisor.processes import Console
from souveraine.supervisor.redis import RedisUnavailable
from souveraine.supervisor.server import Plan, Server
from souveraine.supervisor.supervisor import GaveUp


def main() -> int:
    """Run the server; 0 after a clean stop, 1 with one clear text when the start failed."""
    try:
        Server(Plan.from_json(sys.argv[1]), Console(sys.stdout)).run()
    except (RedisUnavailable, GaveUp) as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
