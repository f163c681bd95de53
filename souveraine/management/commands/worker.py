"""`worker`: one worker of an installation with a common Redis; see docs/deployment.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connections

from souveraine.management import preparation


class Command(BaseCommand):
    """Prepare the database and become the Celery worker; start as many as you like."""

    help = "Start one worker; needs REDIS_URL. `serve` starts everything at once."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Never returns. Raises CommandError with one clear text when it cannot start."""
        config = settings.CONFIG
        common = preparation.serve_options(config)
        environment = preparation.shared_environment(common, config)
        preparation.prepare_database(self.stdout.write)
        connections.close_all()
        self.stdout.write(f"Worker with room for {common.concurrency} turns at once")
        # no descriptor to hand down: nobody holds a lock on a shared data directory
        preparation.become(replace(common.worker(environment, -1), inherit=()))
