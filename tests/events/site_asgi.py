"""The ASGI application of `tests.events.site`, put together as `souveraine.asgi` does."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter

from souveraine.api.handler import get_application

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.events.site"
django_application = get_application()

from souveraine.api.drain import drained  # noqa: E402
from souveraine.api.handoff import handoff, limit_body  # noqa: E402
from tests.events.views import flood_socket  # noqa: E402

application = drained(
    ProtocolTypeRouter(
        {"http": limit_body(handoff(django_application), 100_000), "websocket": flood_socket}
    )
)
