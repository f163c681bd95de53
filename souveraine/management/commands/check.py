"""`check`: Django's, which also asks database and Redis unless told which databases to ask."""

from __future__ import annotations

from typing import Any

from django.core.management.commands.check import Command as DjangoCheck


class Command(DjangoCheck):
    """Find what is misconfigured; exit code 1 when there is an error."""

    help = "Look for misconfiguration and say how to mend it."

    def handle(self, *app_labels: Any, **options: Any) -> None:
        """Run the checks. Raises SystemCheckError when one has found an error."""
        options["databases"] = options["databases"] or ["default"]
        super().handle(*app_labels, **options)
