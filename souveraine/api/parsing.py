"""JSON in: one parser that refuses what could not be stored, with the old server's 422 bodies."""

from __future__ import annotations

import json
import math
from typing import Any

from rest_framework.parsers import BaseParser

from souveraine.api.validation import failed
from souveraine.lib.text import bad_text_place

MAX_DEPTH = 100  # far below what the encoders and the database's JSON functions can take
TOO_DEEP = f"The JSON is nested more than {MAX_DEPTH} levels deep; flatten it."


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is out of range")
    return number


def is_too_deep(data: Any) -> bool:
    """Tell whether parsed JSON is nested deeper than what encoders and databases can take."""
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


class StrictJSONParser(BaseParser):
    """Parse the body as JSON. An empty body is `{}` (several Letta calls have none)."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        raw = stream.read()
        if not raw.strip():
            return {}
        try:
            data = json.loads(
                raw.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite
            )
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
            raise failed("json_invalid", ("body",), TOO_DEEP) from None
        if is_too_deep(data):
            raise failed("json_invalid", ("body",), TOO_DEEP)
        place = bad_text_place(data)
        if place:
            raise failed("string_unicode", ("body",), f"Remove it and send again. {place}")
        return data
