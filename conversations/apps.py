"""App configuration of `conversations`: registers its built-in tools."""

from __future__ import annotations

from django.apps import AppConfig


class ConversationsConfig(AppConfig):
    name = "conversations"

    def ready(self) -> None:
        from agents.tools.registry import register  # noqa: PLC0415  models load after apps
        from conversations.multi_agent import MULTI_AGENT_TOOLS  # noqa: PLC0415
        from conversations.tools import CONVERSATION_SEARCH  # noqa: PLC0415

        register(CONVERSATION_SEARCH, *MULTI_AGENT_TOOLS)
