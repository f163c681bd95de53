"""The ASGI application that daphne serves: HTTP through Django with stream hand-off."""

from __future__ import annotations

import os
from typing import Any

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "souveraine.settings")
django_application = get_asgi_application()  # sets Django up, which the import below needs

from souveraine.api.handoff import Receive, Send, handoff, limit_body  # noqa: E402

NO_SUCH_SOCKET = 4404  # the WebSocket range for applications, after HTTP's 404


async def refuse_websocket(scope: Any, receive: Receive, send: Send) -> None:
    """Close a WebSocket on a path that has none."""
    await receive()
    await send({"type": "websocket.close", "code": NO_SUCH_SOCKET})


application = ProtocolTypeRouter(
    {
        "http": limit_body(
            handoff(django_application), settings.CONFIG["SOUVERAINE_MAX_REQUEST_BYTES"]
        ),
        "websocket": refuse_websocket,
    }
)
