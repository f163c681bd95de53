"""JSON in: one parser that refuses what could not be stored, with the old server's 422 bodies."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.parsers import BaseParser

from souveraine.api.validation import failed
from souveraine.lib.text import bad_text_place

MAX_DEPTH_HINT = "The JSON is nested too deeply; flatten it."


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class StrictJSONParser(BaseParser):
    """Parse the body as JSON. An empty body is `{}` (several Letta calls have none)."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        raw = stream.read()
        if not raw.strip():
            return {}
        try:
            data = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError as exc:
            raise failed("json_invalid", ("body", exc.start), "The body is not UTF-8") from None
        except json.JSONDecodeError as exc:
            raise failed(
                "json_invalid", ("body", exc.pos), "JSON decode error", {}, {"error": exc.msg}
            ) from None
        except ValueError as exc:
            raise failed(
                "json_invalid", ("body",), f"JSON decode error: {str(exc)[:200]}"
            ) from None
        except RecursionError:
            raise failed("json_invalid", ("body",), MAX_DEPTH_HINT) from None
        place = bad_text_place(data)
        if place:
            raise failed("string_unicode", ("body",), f"Remove it and send again. {place}")
        return data
