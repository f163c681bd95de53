"""Celery tasks and the worker's life: start, warm-up, drain. Loaded by workers only."""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta
from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.conf import settings
from django.db import connections

from agents.providers import registry
from conversations.services.dispatch import TASK
from conversations.turn.worker import TurnWorker
from souveraine.lib.replaceable import Replaceable

logger = logging.getLogger(__name__)


def _started() -> TurnWorker:
    worker = TurnWorker()
    worker.start()
    return worker


turn_worker: Replaceable[TurnWorker] = Replaceable(_started)


@shared_task(name=TASK, ignore_result=True)
def run_turn(run_id: str) -> None:
    """Run one turn; the thread waits for it, so that shutdown and inspection see the true load."""
    try:
        turn_worker().execute(uuid.UUID(run_id))
    finally:
        connections.close_all()  # there may be hundreds of these threads


@worker_ready.connect
def _warm_up(**kwargs: Any) -> None:
    registry.warm_up()
    turn_worker()
    registry.list_models()
    logger.info("event=worker_ready owner=%s", turn_worker().owner)


@worker_shutting_down.connect
def _drain(**kwargs: Any) -> None:
    turn_worker().drain(timedelta(seconds=settings.CONFIG["SHUTDOWN_TIMEOUT"]))
