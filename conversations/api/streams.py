"""What is sent back for a turn: SSE frames as they come, or one JSON answer when the turn has ended.

Run as tasks behind the hand-off: a client that leaves ends the pump, never the run.
"""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils import timezone

from conversations.api.following import Beginning, beginning_of, rebuilt_events
from conversations.api.reading import read
from conversations.models import Run
from conversations.selectors import run_messages
from conversations.services.runs import has_ended
from conversations.wire import frames
from souveraine.api.handoff import StreamSender
from souveraine.errors import PROVIDER_STATUS
from souveraine.events import sse
from souveraine.events.hub import get_hub
from souveraine.events.log import Event

logger = logging.getLogger(__name__)
ENDED_WITHOUT_EVENTS_SECONDS = (
    20.0  # then the sweeper (5 s) has failed too and the stream is closed as incomplete
)
POLL_SECONDS = 5.0


@dataclass
class SseStream:
    """Frames of one run with seq > `after` as Letta's clients expect them (contract §4.3)."""

    run_id: uuid.UUID
    after: int = 0
    include_pings: bool = True
    message_types: list[str] | None = None
    is_foreground: bool = False  # a cancelled one ends without [DONE], as on the old server

    async def run(self, send: StreamSender) -> None:
        """Send until the run's `end`; keep-alive pings in silence. Raises Expired and InvalidArgument."""
        beginning = await beginning_of(self.run_id, self.after)
        await send.start(200, sse.HEADERS)
        if beginning.events is not None:
            await self._send_stored(send, beginning.events)
        else:
            await self._follow(send, beginning)

    async def _send_stored(self, send: StreamSender, events: list[Event]) -> None:
        await send.body(
            b"".join(self._encode(event, is_stored=True) for event in events), more=False
        )

    async def _follow(self, send: StreamSender, beginning: Beginning) -> None:
        last_seq, silent_since_end = beginning.seq, 0.0
        interval = settings.CONFIG["SOUVERAINE_PING_SECONDS"]
        async with get_hub().subscribe(self.run_id, last_seq) as subscription:
            while True:
                events = await subscription.next(interval)
                if events is None:
                    await send.body(self._keep_alive(last_seq))
                    if await read(has_ended, self.run_id):
                        silent_since_end += interval
                        if silent_since_end >= ENDED_WITHOUT_EVENTS_SECONDS:
                            await self._incomplete(send)
                            return
                    continue
                last_seq = events[-1].seq
                out = b"".join(self._encode(event) for event in events)
                is_end = events[-1].kind == "end"
                if beginning.is_whole_at_end:
                    if is_end:
                        await self._send_stored(send, await read(rebuilt_events, self.run_id))
                        return
                    continue
                if out or is_end:
                    await send.body(out, more=not is_end)
                if is_end:
                    return

    def _encode(self, event: Event, *, is_stored: bool = False) -> bytes:
        if event.kind == "end":
            is_cancelled = json.loads(event.data or b"{}").get("stop_reason") == "cancelled"
            return b"" if is_cancelled and self.is_foreground else sse.DONE
        number = b"null" if is_stored else b"%d" % event.seq
        data = event.data.replace(b'"seq_id":null', b'"seq_id":' + number, 1)
        if event.kind == "error":
            return sse.error_frame(data)
        if event.kind == "ping":
            return sse.data_frame(data) if self.include_pings else b""
        if self.message_types and not self._is_wanted(event.data):
            return b""
        return sse.data_frame(data)

    def _is_wanted(self, data: bytes) -> bool:
        kind = json.loads(data).get("message_type", "")
        return not kind.endswith("_message") or kind in (self.message_types or ())

    def _keep_alive(self, last_seq: int) -> bytes:
        if not self.include_pings:
            return sse.COMMENT_PING
        frame = frames.ping_frame(self.run_id, timezone.now())
        return sse.data_frame(frames.dump({**frame, "seq_id": last_seq or None}))

    async def _incomplete(self, send: StreamSender) -> None:
        logger.error("event=stream_without_end run_id=run-%s", self.run_id)
        error = {
            "error_type": "stream_incomplete",
            "message": "The stream ended early.",
            "detail": "The run has ended, but its last events are missing. List the messages to see the answer.",
        }
        stop = sse.data_frame(frames.dump(frames.stop_reason_frame("error")))
        frame = sse.error_frame(frames.dump(frames.error_frame(self.run_id, error)))
        await send.body(stop + frame + sse.DONE, more=False)


@dataclass
class RefusedStream:
    """A send that an approval stands in the way of, as Letta's clients expect it on a stream (contract §4.5)."""

    text: str

    async def run(self, send: StreamSender) -> None:
        """Send stop_reason, the error and the end; there is no run."""
        error = {"error_type": "internal_error", "message": self.text, "detail": self.text}
        await send.start(200, sse.HEADERS)
        stop = sse.data_frame(frames.dump(frames.stop_reason_frame("error")))
        frame = sse.error_frame(frames.dump(frames.error_frame(None, error)))
        await send.body(stop + frame + sse.DONE, more=False)


@dataclass
class JsonAnswer:
    """One LettaResponse when the run has ended; provider errors get their status (contract §1.4)."""

    run_id: uuid.UUID
    message_types: list[str] | None = None

    async def run(self, send: StreamSender) -> None:
        """Wait for the end, then answer from the rows."""
        async with get_hub().subscribe(self.run_id) as subscription:
            while True:
                events = await subscription.next(POLL_SECONDS)
                if events is None and await read(has_ended, self.run_id):
                    break
                if events and events[-1].kind == "end":
                    break
        status, body = await read(self.answer)
        # An SDK's silent repetition would store the message and ask the model once more.
        await send.json(status, body, {"X-Should-Retry": "false"} if status >= 400 else None)

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Return status and body for the ended run."""
        return answer_of(self.run_id, self.message_types)


def answer_of(run_id: uuid.UUID, message_types: list[str] | None) -> tuple[int, dict[str, Any]]:
    """Return status and body for an ended run."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return 404, {
            "detail": f"The agent of run-{run_id} was deleted while it ran.",
            "code": "NOT_FOUND",
        }
    if run.error:
        error = run.error
        body = {"type": error["error_type"], "message": error["message"], "detail": error["detail"]}
        return PROVIDER_STATUS.get(error["error_type"], 500), {"error": body}
    return 200, frames.letta_response(run_messages(run), run.stop_reason, run.usage, message_types)
