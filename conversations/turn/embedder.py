"""Embeds what was said, in the background of one worker at a time; only with SOUVERAINE_EMBEDDING_MODEL."""

from __future__ import annotations

import asyncio
import logging

from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from agents.providers import embeddings
from conversations.services.embedding import keep_vectors, texts_to_embed
from conversations.turn.database import run_db
from souveraine.errors import ProviderError, SouveraineError
from souveraine.events.connection import sync_client

logger = logging.getLogger(__name__)
LOOK_SECONDS = 5.0
PAUSE_SECONDS = 0.2  # between batches of a long history: answers of the same model server go first
FAILED_SECONDS = 60.0
LOCK = "souveraine:embedding-messages"
LOCK_SECONDS = int(embeddings.BATCH_SECONDS) + 30


class MessageEmbedder:
    """Looks for messages without a vector every few seconds."""

    async def run(self) -> None:
        """Embed until cancelled."""
        handle = settings.CONFIG["SOUVERAINE_EMBEDDING_MODEL"]
        if not handle:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(await self._step(handle))

    async def _step(self, handle: str) -> float:
        """Embed one batch; returns after how many seconds to look again."""
        try:
            if not await asyncio.to_thread(_take_lock):
                return LOOK_SECONDS
            try:
                return PAUSE_SECONDS if await embed_batch(handle) else LOOK_SECONDS
            finally:
                await asyncio.to_thread(_free_lock)
        except SouveraineError as exc:
            reason = exc.provider_detail if isinstance(exc, ProviderError) else exc.message
            logger.warning("event=messages_not_embedded model=%s error=%s", handle, reason)
        except (DatabaseError, RedisError, OSError) as exc:
            logger.warning("event=messages_not_embedded model=%s error=%r", handle, exc)
        return FAILED_SECONDS


async def embed_batch(handle: str) -> bool:
    """Embed the next messages; tells whether there were any. Raises as `embeddings.embed`."""
    texts = await run_db(texts_to_embed, handle, embeddings.BATCH)
    if not texts:
        return False
    try:
        vectors = await asyncio.to_thread(embeddings.embed, handle, list(texts.values()))
        found = dict(zip(texts, vectors, strict=True))
    except ProviderError as exc:
        if exc.is_transient:
            raise
        found = await _one_by_one(handle, texts)
    await run_db(keep_vectors, handle, found)
    return True


async def _one_by_one(handle: str, texts: dict[int, str]) -> dict[int, bytes]:
    """Embed each text alone, for a batch that was refused: one of them must not keep back all that come after it.

    Raises the error when the model refuses every one.
    """
    found: dict[int, bytes] = {}
    refused: ProviderError | None = None
    for row, text in texts.items():
        try:
            [found[row]] = await asyncio.to_thread(embeddings.embed, handle, [text])
        except ProviderError as exc:
            if exc.is_transient:
                raise
            refused = exc
    if refused is not None and not found:
        raise refused
    return found


def _take_lock() -> bool:
    return bool(sync_client().set(LOCK, "1", nx=True, ex=LOCK_SECONDS))


def _free_lock() -> None:
    sync_client().delete(LOCK)
