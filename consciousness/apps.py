"""App configuration of `consciousness`."""

from __future__ import annotations

from django.apps import AppConfig


class ConsciousnessConfig(AppConfig):
    name = "consciousness"
