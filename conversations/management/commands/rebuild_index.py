"""`rebuild_index`: make rows again out of the agents' files, after the database was lost."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from conversations.services.rebuild import rebuild_index


class Command(BaseCommand):
    help = "Rebuild agents and conversations from the files under agents/. What is in the database stays as it is."

    def handle(self, *args: Any, **options: Any) -> None:
        report = rebuild_index()
        for problem in report.problems:
            self.stderr.write(f"Skipped {problem}")
        self.stdout.write(
            f"Rebuilt {report.agents} agents, {report.conversations} conversations with {report.messages} messages; "
            f"{len(report.problems)} files could not be read."
        )
