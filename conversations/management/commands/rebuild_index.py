"""`rebuild_index`: make rows again out of the agents' files, after the database was lost."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from conversations.services.rebuild import rebuild_index


class Command(BaseCommand):
    help = "Rebuild agents and conversations from the files under agents/. What is in the database stays as it is."

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        report = rebuild_index()
        for problem in report.problems:
            self.stderr.write(f"Skipped {problem}")
        self.stdout.write(
            f"Rebuilt {report.agents} agents, {report.conversations} conversations with {report.messages} messages. "
            "API keys and logins are not among the files: make them anew with createkey and createadmin."
        )
        if report.problems:
            raise CommandError(
                f"{len(report.problems)} files were skipped, see above. Mend them and run this again."
            )
