"""`web`: one web process of an installation with a common Redis; see docs/deployment.md."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from souveraine.management import preparation
from souveraine.supervisor import listen


class Command(BaseCommand):
    """Prepare the database, take the port, and become daphne."""

    help = "Start one web process; needs REDIS_URL. `serve` starts everything at once."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the two settings that differ between the web processes of one machine."""
        parser.add_argument("--host", default="", help="Address to bind (else SOUVERAINE_HOST)")
        parser.add_argument("--port", type=int, default=0, help="TCP port (else SOUVERAINE_PORT)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Never returns. Raises CommandError with one clear text when it cannot start."""
        config = settings.CONFIG
        common = preparation.serve_options(config, options["host"], options["port"])
        environment = preparation.shared_environment(common, config)
        preparation.prepare_database(self.stdout.write)
        preparation.refuse_open_door(common.host)
        connections.close_all()
        try:
            listener = listen.bind(common.host, common.port)
        except listen.CannotListen as exc:
            raise CommandError(str(exc)) from None
        self.stdout.write(f"Web process at {listen.public_url(common.host, common.port)}")
        fd = listener.detach()
        preparation.become(common.web(environment, fd, fd))
