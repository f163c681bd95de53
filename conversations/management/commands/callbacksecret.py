"""`callbacksecret`: show what receivers of callbacks check signatures with."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from conversations.services.callbacks import signing_secret


class Command(BaseCommand):
    help = "Show the secret that signs callbacks, as receivers configure it (Standard Webhooks)."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(signing_secret())
