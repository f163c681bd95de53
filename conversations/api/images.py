"""Images of a send body, checked before anything is stored. Those at a URL are fetched by the worker."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from agents.providers.images import BadImage, checked_source
from souveraine.api.validation import failed
from souveraine.errors import ValidationFailed
from souveraine.lib.outbound import Refused, check_url

Part = dict[str, Any]
Place = tuple[str | int, ...]
MAX_IMAGES = 20  # in one message


def checked_image(part: Part, loc: Place) -> Part:
    """Return the image part as it is stored: bytes inline, or the URL where they are. Raises ValidationFailed."""
    source = part.get("source")
    if not isinstance(source, dict):
        raise failed("dict_type", (*loc, "source"), "An image needs a `source` object.", source)
    kind, url, data = source.get("type"), source.get("url"), source.get("data")
    detail = {"detail": source["detail"]} if isinstance(source.get("detail"), str) else {}
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0] or None
        return {"type": "image", "source": {**_inline(media_type, data, loc), **detail}}
    if kind == "url" and isinstance(url, str):
        try:
            return {
                "type": "image",
                "source": {"type": "url", "url": str(check_url(url)), **detail},
            }
        except Refused as exc:
            raise _refused(str(exc), (*loc, "source", "url"), url) from None
    if kind in ("base64", "letta") and isinstance(data, str):
        media_type = source.get("media_type")
        given = media_type if isinstance(media_type, str) else None
        return {"type": "image", "source": {**_inline(given, data, loc), **detail}}
    if kind == "letta":
        raise _refused(
            "Images by file_id are not kept here: send the bytes as base64, or a URL.",
            (*loc, "source"),
            source.get("file_id"),
        )
    raise failed(
        "union_tag_invalid",
        (*loc, "source"),
        'The source of an image is {"type": "base64", "media_type", "data"} or {"type": "url", "url"}.',
        kind,
    )


def check_number(parts: list[Part], loc: Place) -> None:
    """Raise ValidationFailed when there are too many images in a message."""
    if sum(part.get("type") == "image" for part in parts) > MAX_IMAGES:
        raise _refused(f"A message can have at most {MAX_IMAGES} images.", loc, None)


def _inline(media_type: str | None, data: str, loc: Place) -> Part:
    try:
        return checked_source(media_type, data, settings.CONFIG["SOUVERAINE_MAX_IMAGE_BYTES"])
    except BadImage as exc:
        raise _refused(str(exc), (*loc, "source"), media_type) from None


def _refused(why: str, loc: Place, given: Any) -> ValidationFailed:
    shown = given[:200] if isinstance(given, str) else given
    return failed("value_error", loc, why, shown)
