"""Tell a client's URL that its run has ended: at least once, signed, with back-off (docs/api.md, "Callbacks").

A callback is due when its run has ended; nothing at the end of a turn has to remember it. Claiming moves
the next attempt on, so a worker that dies while it sends only delays the next one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from conversations.models import Run, RunCallback
from conversations.selectors import run_messages
from conversations.services.runs import TERMINAL
from conversations.wire import frames
from conversations.wire.states import run_state
from souveraine.lib.durability import without_disk_sync
from souveraine.lib.secrets import derived_key

RETRY_SECONDS = (10, 40, 160, 640, 2560, 3600, 3600)  # after each failed attempt but the last
MAX_ATTEMPTS = len(RETRY_SECONDS) + 1
SENDING = timedelta(seconds=60)  # above the sender's time-out: then it is certain to have ended
MAX_BODY_BYTES = 5 * 1024 * 1024
SECRET_PREFIX = "whsec_"  # noqa: S105  the form that Standard Webhooks libraries read
GONE = 410


@dataclass(frozen=True)
class Delivery:
    """One attempt to send; `attempt` counts from 1."""

    run_id: uuid.UUID
    url: str
    attempt: int

    def headers(self, timestamp: int, body: bytes) -> dict[str, str]:
        """Return the headers of Standard Webhooks; the id is the run's, the same at each attempt."""
        delivery_id = f"run-{self.run_id}"
        signed = f"{delivery_id}.{timestamp}.".encode() + body
        digest = hmac.new(signing_key(), signed, hashlib.sha256).digest()
        return {
            "Content-Type": "application/json",
            "User-Agent": "Souveraine",
            "webhook-id": delivery_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        }


def signing_key() -> bytes:
    """Return the key that signs callbacks: the configured secret, else one of this server's own."""
    secret: str = settings.CONFIG["SOUVERAINE_CALLBACK_SECRET"]
    if secret.startswith(SECRET_PREFIX):
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    return secret.encode() or derived_key(b"callbacks")


def signing_secret() -> str:
    """Return the key as receivers configure it: `whsec_` and base64."""
    return SECRET_PREFIX + base64.b64encode(signing_key()).decode()


@without_disk_sync()
def claim_due(limit: int) -> list[Delivery]:
    """Take at most `limit` callbacks of ended runs that are due. Each is given to one caller only."""
    now = timezone.now()
    due = RunCallback.objects.filter(next_attempt_at__lte=now, run__status__in=TERMINAL)
    return [
        Delivery(row.run_id, row.url, row.attempts + 1)
        for row in due.order_by("next_attempt_at")[:limit]
        if _claim(row)
    ]


def _claim(row: RunCallback) -> bool:
    mine = RunCallback.objects.filter(pk=row.pk, next_attempt_at=row.next_attempt_at)
    if row.attempts >= MAX_ATTEMPTS:  # its worker died during the last one
        mine.update(next_attempt_at=None)
        return False
    return bool(mine.update(next_attempt_at=timezone.now() + SENDING, attempts=F("attempts") + 1))


def body_of(run_id: uuid.UUID) -> bytes:
    """Return what is sent: the run's id, status and metadata, with the turn's answer under `result`.

    Raises Run.DoesNotExist when it was deleted meanwhile.
    """
    run = Run.objects.select_related("callback").get(pk=run_id)
    state = run_state(run)
    types = run.request.get("include_return_message_types")
    result = frames.letta_response(run_messages(run), run.stop_reason, run.usage, types)
    body = _encoded(state, {**state["metadata"], "result": result})
    if len(body) <= MAX_BODY_BYTES:
        return body
    return _encoded(state, {**state["metadata"], "result": None, "result_omitted": "too large"})


def _encoded(state: frames.Frame, metadata: frames.Frame) -> bytes:
    body = {
        "run_id": state["id"],
        "status": state["status"],
        "completed_at": state["completed_at"],
        "metadata": metadata,
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def record(
    delivery: Delivery, *, status_code: int | None, error: str = "", is_final: bool = False
) -> None:
    """Note how an attempt went. Without an error, or when `is_final`, there is no further one."""
    now = timezone.now()
    is_over = not error or is_final or status_code == GONE or delivery.attempt >= MAX_ATTEMPTS
    RunCallback.objects.filter(pk=delivery.run_id, attempts=delivery.attempt).update(
        sent_at=now,
        status_code=status_code,
        error=error[:2000],
        next_attempt_at=None
        if is_over
        else now + timedelta(seconds=RETRY_SECONDS[delivery.attempt - 1]),
    )
