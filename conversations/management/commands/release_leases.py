"""`release_leases --pid N`: give back the runs of a worker that is known to be dead. Called by `serve`."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from conversations.services.dispatch import enqueue_all
from conversations.services.runs import overdue
from conversations.turn.orphans import release_owner


class Command(BaseCommand):
    help = (
        "Release the runs of a dead worker of this host, so that another one takes them up at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--pid", type=int, required=True, help="process id of the dead worker")

    def handle(self, *args: Any, **options: Any) -> None:
        queued = release_owner(f"{socket.gethostname()}:{options['pid']}:")
        # What the dead worker had fetched but not claimed is gone from the broker.
        enqueue_all([*queued, *overdue(timedelta(0))])
        self.stdout.write(f"Released {len(queued)} runs.")
