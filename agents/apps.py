"""App configuration of `agents`: registers the built-in tools."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


def _store_tools(sender: Any, **kwargs: Any) -> None:
    from agents.tools.registry import store_builtin_tools  # noqa: PLC0415  models load after apps

    if kwargs.get("using", "default") == "default":
        store_builtin_tools()


class AgentsConfig(AppConfig):
    name = "agents"

    def ready(self) -> None:
        from agents.tools import archival, elsewhere, files, memory, web  # noqa: PLC0415  models load after apps
        from agents.tools.registry import register  # noqa: PLC0415

        register(*memory.TOOLS, *archival.TOOLS, *files.TOOLS, *web.TOOLS, *elsewhere.TOOLS)
        post_migrate.connect(_store_tools, sender=self)
