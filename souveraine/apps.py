"""App configuration of `souveraine`: registers its system checks."""

from __future__ import annotations

from django.apps import AppConfig

from souveraine import checks


class SouveraineConfig(AppConfig):
    name = "souveraine"

    def ready(self) -> None:
        checks.register_all()
