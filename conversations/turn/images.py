"""Fetch the images that a message has only by URL, once, before the first model call of its run.

The bytes are kept in the message: providers are never told to fetch, the history does not change when the
address does, and nothing inside of the operator's network is fetched (`souveraine.lib.outbound`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import urljoin

from django.conf import settings

from agents.providers.images import BadImage, source_of
from conversations.models import Message, Run
from conversations.services.accept import HAS_URLS
from conversations.services.runs import fenced
from conversations.turn.database import run_db
from conversations.turn.notices import add_notices
from souveraine.lib.outbound import Refused, Unreachable, request

logger = logging.getLogger(__name__)
FETCH_SECONDS = 10.0
REDIRECTS = 3
Part = dict[str, Any]


async def take_in_images(run: Run) -> None:
    """Replace the URLs of the run's images by their bytes; what cannot be fetched is told. May be repeated."""
    if not run.request.get(HAS_URLS):
        return
    rows = await run_db(_rows, run)
    for row in rows:
        parts = await asyncio.gather(*(_taken_in(part) for part in row.content or ()))
        await run_db(_store, run, row, list(parts))


def _rows(run: Run) -> list[Message]:
    found = Message.objects.filter(run=run, role__in=[Message.Role.USER, Message.Role.SYSTEM])
    return [row for row in found if any(map(_is_to_fetch, row.content or ()))]


def _is_to_fetch(part: Part) -> bool:
    source = part.get("source") or {}
    return part.get("type") == "image" and source.get("type") == "url" and not source.get("error")


async def _taken_in(part: Part) -> Part:
    if not _is_to_fetch(part):
        return part
    source = part["source"]
    try:
        found = await _fetch(source["url"])
        return {**part, "source": {**found, "url": source["url"]}}
    except (Refused, Unreachable, BadImage) as exc:
        return {**part, "source": {**source, "error": str(exc)}}


async def _fetch(url: str) -> Part:
    """Return the source of the image at the URL. Raises Refused, Unreachable and BadImage."""
    limit = settings.CONFIG["SOUVERAINE_MAX_IMAGE_BYTES"]
    for _ in range(REDIRECTS + 1):
        reply = await request(
            "GET",
            url,
            headers={"Accept": "image/*"},
            timeout_seconds=FETCH_SECONDS,
            max_bytes=limit + 1,
        )
        location = {k.lower(): v for k, v in reply.headers}.get(b"location")
        if 300 <= reply.status < 400 and location:
            try:
                url = urljoin(url, location.decode("latin-1"))
            except ValueError as exc:
                raise Unreachable(f"The address redirects to what is no URL: {exc}") from None
            continue
        if reply.status != 200:
            raise Unreachable(f"The address answered with status {reply.status}.")
        return source_of(reply.body, limit)
    raise Unreachable(f"The address redirects more than {REDIRECTS} times.")


def _store(run: Run, row: Message, parts: list[Part]) -> None:
    """Keep the parts, under the run's fence, and tell the user of what is missing."""
    with fenced(run):
        Message.objects.filter(pk=row.pk).update(content=parts)
    missing = [p["source"] for p in parts if (p.get("source") or {}).get("error")]
    add_notices(
        run, [f"The image at {s['url'][:200]} was left out: {s['error'][:200]}" for s in missing]
    )
