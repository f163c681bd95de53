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
        from agents.jobs import embedding, kinds  # noqa: PLC0415  models load after apps
        from agents.services.files import KIND as READ_FILE  # noqa: PLC0415
        from agents.tools import (  # noqa: PLC0415
            archival,
            elsewhere,
            files,
            folders,
            memory,
            web,
        )
        from agents.tools.registry import register  # noqa: PLC0415

        for group in (memory, archival, files, folders, web, elsewhere):
            register(*group.TOOLS)
        kinds.register(READ_FILE, embedding.KIND)
        post_migrate.connect(_store_tools, sender=self)
