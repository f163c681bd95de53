"""JSON out: compact, UTF-8, whatever the client's Accept header says (SDKs ask JSON even for SSE)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.utils.encoders import JSONEncoder


class CompactJSONRenderer(JSONRenderer):
    """JSON without indentation; `charset` stays unset as on the old server.

    A page of 50 agents is 500 KB, which orjson writes in a tenth of the time. What it refuses (integers
    beyond 64 bits in a client's own fields) the standard library writes.
    """

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Any = None,
    ) -> bytes:
        if data is None:
            response = (renderer_context or {}).get("response")
            return b"" if response is not None and response.status_code == 204 else b"null"
        try:
            return orjson.dumps(
                data, default=JSONEncoder().default, option=orjson.OPT_PASSTHROUGH_DATETIME
            )
        except TypeError:
            return bytes(super().render(data, accepted_media_type, renderer_context))

    def get_indent(self, accepted_media_type: str, renderer_context: Any) -> None:
        return None


class AcceptAnything(BaseContentNegotiation):
    """Always choose the first renderer and the parser by position: no 406, no `?format=` magic."""

    def select_parser(self, request: Request, parsers: Iterable[Any]) -> Any:
        return next(iter(parsers))

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, str(renderer.media_type)
