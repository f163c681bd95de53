"""App configuration of `memfs`."""

from __future__ import annotations

from django.apps import AppConfig


class MemfsConfig(AppConfig):
    name = "memfs"
