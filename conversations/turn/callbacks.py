"""Sends the callbacks that are due, from the worker's loop; what fails or is lost comes up again by its row."""

from __future__ import annotations

import asyncio
import logging
import time

from django.db import DatabaseError

from conversations.services import callbacks
from conversations.services.callbacks import Delivery
from conversations.turn.database import run_db
from souveraine.lib import outbound

logger = logging.getLogger(__name__)
LOOK_SECONDS = 3.0
AT_ONCE = 16
TIMEOUT_SECONDS = 15.0
MAX_ANSWER_BYTES = 64 * 1024


class CallbackSender:
    """Looks for due callbacks every few seconds, and at once after `wake`."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Look now: a run with a callback has ended."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled. What is being sent then is sent again later."""
        try:
            while True:
                self._wake.clear()
                await self._start_due()
                try:
                    await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
                except TimeoutError:
                    continue
        finally:
            for task in self._sending:
                task.cancel()

    async def _start_due(self) -> None:
        free = AT_ONCE - len(self._sending)
        if free <= 0:
            return
        try:
            due = await run_db(callbacks.claim_due, free)
        except (DatabaseError, OSError) as exc:
            logger.warning("event=callbacks_not_claimed error=%r", exc)
            return
        for delivery in due:
            task = asyncio.create_task(self._send(delivery))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("event=callback_crashed", exc_info=task.exception())

    async def _send(self, delivery: Delivery) -> None:
        body = await run_db(callbacks.body_of, delivery.run_id)
        status, error, is_final = None, "", False
        try:
            reply = await outbound.request(
                "POST",
                delivery.url,
                headers=delivery.headers(int(time.time()), body),
                content=body,
                timeout_seconds=TIMEOUT_SECONDS,
                max_bytes=MAX_ANSWER_BYTES,
            )
            status = reply.status
            if not 200 <= status < 300:
                error = f"The answer was {status}."
        except outbound.Refused as exc:
            error, is_final = str(exc), True
        except outbound.Unreachable as exc:
            error = str(exc)
        if error:
            logger.warning(
                "event=callback_failed run_id=run-%s attempt=%s error=%s",
                delivery.run_id,
                delivery.attempt,
                error,
            )
        await run_db(callbacks.record, delivery, status_code=status, error=error, is_final=is_final)
