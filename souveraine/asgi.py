"""The ASGI application that daphne serves: HTTP through Django with stream hand-off, and WebSockets."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter
from django.conf import settings

from souveraine.api.handler import get_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "souveraine.settings")
django_application = get_application()  # sets Django up, which the import below needs

from conversations.api.sockets import websocket  # noqa: E402
from souveraine.api.drain import drained  # noqa: E402
from souveraine.api.handoff import BodyLimit, handoff, limit_body  # noqa: E402
from souveraine.api.unknown import with_latest  # noqa: E402


def _limit(setting: str) -> BodyLimit:
    return BodyLimit(settings.CONFIG[setting], setting)


application = drained(
    with_latest(
        ProtocolTypeRouter(
            {
                "http": limit_body(
                    handoff(django_application),
                    settings.CONFIG["SOUVERAINE_MAX_REQUEST_BYTES"],
                    {"/v1/agents/import": _limit("SOUVERAINE_MAX_IMPORT_BYTES")},
                ),
                "websocket": websocket,
            }
        )
    )
)
