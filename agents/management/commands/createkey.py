"""`createkey NAME`: make an API key and show it once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.actor import ALL_SCOPES, first_user
from agents.models import User
from agents.services.keys import create_key
from souveraine.errors import SouveraineError
from souveraine.lib.program import command_line


class Command(BaseCommand):
    help = "Make an API key. It is shown once; only its hash is stored."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", default="key", help="what the key is for")
        parser.add_argument("--user", help="user name of the owner (default: the first user)")
        parser.add_argument(
            "--scopes",
            default="read,chat",
            help=f"comma list of {', '.join(sorted(ALL_SCOPES))} (default: read,chat)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        owner = first_user()
        if options["user"]:
            found = User.objects.filter(username=options["user"]).first()
            if found is None:
                raise CommandError(
                    f"There is no user {options['user']!r}. "
                    f"Make one with `{command_line('createadmin')}`."
                )
            owner = found
        try:
            row, key = create_key(owner, options["name"], options["scopes"].split(","))
        except SouveraineError as exc:
            raise CommandError(exc.message) from None
        self.stderr.write(
            f"Key '{row.name}' of user '{owner.username}' with scopes {', '.join(row.scopes)}:"
        )
        self.stdout.write(key)
        self.stderr.write(
            "Keep it: it is not shown again. Send it as `Authorization: Bearer <key>`."
        )
