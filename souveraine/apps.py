"""App configuration of `souveraine`."""

from __future__ import annotations

from django.apps import AppConfig


class SouveraineConfig(AppConfig):
    name = "souveraine"
