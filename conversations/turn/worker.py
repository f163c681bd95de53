"""The worker process's one event loop: claims runs, keeps their leases, sweeps (architecture §2, §5).

A Celery thread calls `execute(run_id)` and waits, so the task's life is the turn's life.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta

from django.conf import settings
from django.db import Error

from agents.services import jobs
from conversations.services import runs, schedules
from conversations.services.cancel import CHANNEL
from conversations.services.dispatch import enqueue_all
from conversations.turn import orphans
from conversations.turn.callbacks import CallbackSender
from conversations.turn.checkpointer import OrmCheckpointer
from conversations.turn.database import run_db, run_lease_db
from conversations.turn.embedder import MessageEmbedder
from conversations.turn.graph import build_graph
from conversations.turn.runner import Released, TurnRunner
from conversations.turn.sweeper import sweep
from souveraine.events.connection import close_async_clients
from souveraine.events.log import Fenced
from souveraine.events.signals import listen
from souveraine.lib.crash_points import reached

logger = logging.getLogger(__name__)
HEARTBEAT_SHARE = 0.15  # of the lease: six chances to renew before it is lost
SWEEP_SECONDS = 3.0
TOOLS_AT_ONCE = 32
CANCEL_POLL_SECONDS = (
    1.0  # finds a cancel whose notice was lost, in time to close the provider within 2 s
)
RELEASE_TIMEOUT_SECONDS = 5.0
GIVE_UP_SHARE = 0.8  # of the lease: without a renewal since then, another worker may take the runs
LAST_TRY_SHARE = 0.1
DUTY_PAUSE_SECONDS = 1.0


def owner_name() -> str:
    """Return `<host>:<pid>:<random>`; the supervisor releases by the first two."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class TurnWorker:
    """Runs turns on one loop thread. `start` once per process, `execute` from any thread."""

    def __init__(self) -> None:
        self.owner = owner_name()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="turn-loop", daemon=True
        )
        self._live: dict[uuid.UUID, tuple[TurnRunner, asyncio.Task[None]]] = {}
        self._claiming: dict[uuid.UUID, bool] = {}  # run → cancelled meanwhile
        self._graph = build_graph(OrmCheckpointer())
        self._tool_slots = asyncio.Semaphore(TOOLS_AT_ONCE)
        self._is_draining = False
        self._renewed_at = time.monotonic()
        self._callbacks = CallbackSender()
        self._embedder = MessageEmbedder()
        self._background: list[asyncio.Task[None]] = []
        self._given_back: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the loop thread with heartbeat, sweeper and cancel listener."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start_background(), self._loop).result()

    async def _start_background(self) -> None:
        for duty in (
            self._heartbeat,
            self._sweep,
            self._listen_for_cancel,
            self._poll_cancels,
            self._callbacks.run,
            self._embedder.run,
        ):
            self._background.append(asyncio.create_task(self._keep(duty)))

    async def _keep(self, duty: Callable[[], Awaitable[None]]) -> None:
        """Do a background duty for ever: a worker without one would look alive and lose its runs."""
        while True:
            try:
                await duty()
            except Exception:  # a named edge: nobody else sees this task's end
                logger.exception("event=duty_failed duty=%s", duty.__name__)
            await asyncio.sleep(DUTY_PAUSE_SECONDS)

    def stop(self) -> None:
        """Cancel everything and end the loop thread; live runs stay `running` until their lease ends."""

        async def cancel() -> None:
            self._cancel_all()
            tasks = [*self._background, *(task for _, task in self._live.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._given_back is not None:
                await self._given_back
            await close_async_clients()

        asyncio.run_coroutine_threadsafe(cancel(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def execute(self, run_id: uuid.UUID) -> None:
        """Claim and run a turn to its end; returns at once when there is nothing to claim."""
        asyncio.run_coroutine_threadsafe(self._execute(run_id), self._loop).result()

    async def _execute(self, run_id: uuid.UUID) -> None:
        if self._is_draining:
            return
        reached("before_claim")
        self._claiming[run_id] = False
        try:
            run = await run_db(runs.claim, run_id, self.owner)
        finally:
            is_cancelled = self._claiming.pop(run_id, False)
        if run is None:
            return
        reached("after_claim")
        runner = TurnRunner(run, self._graph, self._tool_slots)
        runner.is_cancelled = is_cancelled or run.cancel_requested_at is not None
        task = asyncio.create_task(runner.execute(), name=f"run-{run_id}")
        earlier, live = self._live.get(run_id), (runner, task)
        self._live[run_id] = live
        if earlier is not None:
            earlier[1].cancel()  # this worker had stalled and lost the run; now it has it anew
        try:
            await asyncio.wait({task})
            self._report(run_id, task)
        finally:
            if self._live.get(run_id) is live:
                del self._live[run_id]
            if run.request.get("has_callback"):
                self._callbacks.wake()
        if self._given_back is not None:  # Celery ends the process once its tasks have ended
            await asyncio.wait({self._given_back}, timeout=RELEASE_TIMEOUT_SECONDS)

    def _report(self, run_id: uuid.UUID, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            logger.info("event=run_released run_id=run-%s", run_id)
            return
        error = task.exception()
        if isinstance(error, Fenced | Released):
            logger.warning("event=run_lost run_id=run-%s reason=%s", run_id, error)
        elif error is not None:
            # The lease runs out and the sweeper takes the run over.
            logger.error("event=run_abandoned run_id=run-%s", run_id, exc_info=error)

    async def _heartbeat(self) -> None:
        lease = settings.CONFIG["SOUVERAINE_LEASE_SECONDS"]
        while True:
            await asyncio.sleep(lease * HEARTBEAT_SHARE)
            if self._live:
                await self._renew()
            else:
                self._renewed_at = time.monotonic()

    def _seconds_left(self) -> float:
        """Return how long the live runs are surely this worker's."""
        lease = settings.CONFIG["SOUVERAINE_LEASE_SECONDS"]
        return float(self._renewed_at + lease * GIVE_UP_SHARE - time.monotonic())

    async def _renew(self) -> None:
        """Renew the leases; when that cannot be done in time, end the live runs before somebody takes them."""
        asked_at = time.monotonic()
        last_try = settings.CONFIG["SOUVERAINE_LEASE_SECONDS"] * LAST_TRY_SHARE
        try:
            # A database that hangs raises nothing.
            async with asyncio.timeout(max(self._seconds_left(), last_try)):
                held = await run_lease_db(runs.heartbeat, self.owner, list(self._live))
        except (Error, TimeoutError) as exc:
            logger.warning("event=heartbeat_failed error=%r", exc)
            if self._seconds_left() <= 0:
                self._cancel_all()
            return
        self._renewed_at = asked_at
        for run_id, is_cancelled in held.items():
            if is_cancelled:
                self._cancel(run_id)
        for run_id in [r for r in self._live if r not in held]:
            await self._check_lost(run_id)

    async def _check_lost(self, run_id: uuid.UUID) -> None:
        live = self._live.get(run_id)
        if live is None or await run_db(runs.is_held, run_id, self.owner, live[0].run.fence):
            return
        if not await run_db(runs.is_terminal, run_id):
            live[1].cancel()

    def _cancel(self, run_id: uuid.UUID) -> None:
        if run_id in self._claiming:
            self._claiming[run_id] = True
        live = self._live.get(run_id)
        if live is not None:
            live[0].cancel()

    async def _poll_cancels(self) -> None:
        while True:
            await asyncio.sleep(CANCEL_POLL_SECONDS)
            if not self._live:
                continue
            try:
                for run_id in await run_db(runs.cancelled_of, list(self._live)):
                    self._cancel(run_id)
            except Error as exc:
                logger.warning("event=cancel_poll_failed error=%r", exc)

    def _cancel_all(self) -> None:
        for _, task in self._live.values():
            task.cancel()

    async def _listen_for_cancel(self) -> None:
        async for signal in listen(CHANNEL):
            try:
                self._cancel(uuid.UUID(signal.text))
            except ValueError:
                logger.warning("event=bad_cancel_signal text=%r", signal.text[:80])

    async def _sweep(self) -> None:
        while True:
            if self._live and self._seconds_left() <= 0:
                await self._renew()  # the machine slept: it must not take its own runs from itself
            try:
                enqueue_all(await run_db(sweep))
                jobs.queue.enqueue_all(await run_db(jobs.sweep))
                await run_db(schedules.fire_due)
            except (Error, OSError) as exc:
                logger.warning("event=sweep_failed error=%r", exc)
            await asyncio.sleep(SWEEP_SECONDS)

    def drain(self, timeout: timedelta) -> None:
        """Stop claiming; after `timeout` give back what still runs. Returns at once."""
        self._is_draining = True
        self._loop.call_soon_threadsafe(
            self._loop.call_later, timeout.total_seconds(), self._release_all
        )

    def _release_all(self) -> None:
        self._cancel_all()
        self._given_back = self._loop.create_task(self._give_back())

    async def _give_back(self) -> None:
        tasks = [task for _, task in self._live.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=RELEASE_TIMEOUT_SECONDS)
        try:
            enqueue_all(await run_lease_db(orphans.release_owner, self.owner, is_graceful=True))
        except Error as exc:  # the leases run out, and another worker takes them
            logger.warning("event=release_failed error=%r", exc)
