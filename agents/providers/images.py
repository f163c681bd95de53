"""Images in messages: which are taken, told by their first bytes and not by what somebody says of them."""

from __future__ import annotations

import base64
import binascii
from typing import Any

MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_ALIASES = {"image/jpg": "image/jpeg"}
_STARTS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
}


class BadImage(ValueError):
    """These bytes cannot be taken; the text says why."""


def kind_of(data: bytes) -> str | None:
    """Return the media type that the bytes begin like."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, start in _STARTS.items() if data.startswith(start)), None)


def checked_source(media_type: str | None, text: str, limit_bytes: int) -> dict[str, Any]:
    """Return the source of an inline image; `text` is its base64. Raises BadImage."""
    if len(text) > (limit_bytes + 2) // 3 * 4 + 4:
        raise BadImage(_too_large(len(text) * 3 // 4, limit_bytes))
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadImage("The data of the image is no base64.") from None
    return source_of(data, limit_bytes, media_type)


def source_of(data: bytes, limit_bytes: int, media_type: str | None = None) -> dict[str, Any]:
    """Return the source of an image with these bytes. Raises BadImage."""
    if len(data) > limit_bytes:
        raise BadImage(_too_large(len(data), limit_bytes))
    kind = kind_of(data)
    if kind is None:
        raise BadImage(f"This is no image of a known kind. Send {', '.join(MEDIA_TYPES)}.")
    said = _ALIASES.get(media_type or "", media_type)
    if said and said != kind:
        raise BadImage(f"The image is said to be {said[:60]}, but it is {kind}.")
    return {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}


def _too_large(size: int, limit_bytes: int) -> str:
    return f"The image has {size} bytes, more than {limit_bytes} (SOUVERAINE_MAX_IMAGE_BYTES). Send a smaller one."
