"""`createadmin`: make the first user an administrator of /admin/ and set the password."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.actor import first_user
from agents.models import User


class Command(BaseCommand):
    help = "Make an administrator for /admin/. Without a name it is the first user, who owns keyless agents."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "username", nargs="?", help="log-in name (default: the first user, 'owner')"
        )
        parser.add_argument(
            "--password-stdin", action="store_true", help="read the password from standard input"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = first_user()
        name = options["username"]
        if name and name != user.username:
            user, _ = User.objects.get_or_create(username=name)
        password = sys.stdin.readline().strip() if options["password_stdin"] else self._ask()
        try:
            validate_password(password, user)
        except ValidationError as exc:
            raise CommandError(" ".join(exc.messages)) from None
        had_password = user.has_usable_password()
        user.set_password(password)
        user.is_staff = user.is_superuser = user.is_active = True
        user.save()
        changed = "The password was changed. " if had_password else ""
        self.stdout.write(f"{changed}Log in at /admin/ as '{user.username}'.")

    def _ask(self) -> str:
        try:
            password = getpass.getpass("Password: ")
            again = getpass.getpass("Again: ")
        except EOFError:
            raise CommandError(
                "There is no terminal to ask for the password; give it with --password-stdin."
            ) from None
        if password != again:
            raise CommandError("The two passwords differ; nothing was changed.")
        return password
