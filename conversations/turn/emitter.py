"""What a run streams: deltas in token mode, whole messages in step mode; both through the fenced log."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.utils import timezone

from conversations.models import Message, Run
from conversations.wire import frames
from souveraine.events.writer import EventWriter


class StepStream:
    """The frames of one model call. Part indexes (for otids) are counted over the parts that occur."""

    def __init__(self, emitter: Emitter, message_id: uuid.UUID, step_id: uuid.UUID) -> None:
        self._emitter, self.message_id, self._step_id = emitter, message_id, step_id
        self._kinds: list[str] = []
        self._ids: dict[int, str] = {}
        self._date: datetime = timezone.now()

    def _frame(self, kind: str, fields: frames.Frame) -> frames.Frame:
        if kind not in self._kinds:
            self._kinds.append(kind)
        base = frames.base_frame(
            kind,
            message_id=self.message_id,
            date=self._date,
            otid=frames.part_otid(kind, self.message_id, self._kinds.index(kind)),
            step_id=self._step_id,
            run_id=self._emitter.run.pk,
        )
        return {**base, **fields}

    async def text(self, delta: str) -> None:
        """Stream some answer text."""
        if self._emitter.is_token_mode:
            await self._emitter.frame(self._frame("assistant_message", {"content": delta}))

    async def reasoning(self, delta: str) -> None:
        """Stream some reasoning."""
        if self._emitter.is_token_mode:
            fields = {"source": "reasoner_model", "reasoning": delta, "signature": None}
            await self._emitter.frame(self._frame("reasoning_message", fields))

    async def tool_call(
        self, call_id: str, name: str | None, arguments: str, *, is_gated: bool
    ) -> None:
        """Stream the start (`name`) or some arguments of a tool call (contract §4.3: object, not array).

        A call that waits for a client is an approval request, whose deltas have all three keys.
        """
        if not self._emitter.is_token_mode:
            return
        kind = "approval_request_message" if is_gated else "tool_call_message"
        empty: dict[str, Any] = {"name": None, "arguments": None} if is_gated else {}
        deltas: list[dict[str, Any]] = []
        if name is not None:
            deltas.append({**empty, "name": name, "tool_call_id": call_id})
        if arguments:
            deltas.append({**empty, "arguments": arguments, "tool_call_id": call_id})
        for delta in deltas:
            await self._emitter.frame(self._frame(kind, {"tool_call": delta, "tool_calls": delta}))


class Emitter:
    """Writes a run's frames under its fence."""

    def __init__(self, run: Run, writer: EventWriter) -> None:
        self.run, self.writer = run, writer
        self.is_token_mode = bool(run.request.get("stream_tokens"))

    async def frame(self, frame: frames.Frame) -> None:
        """Stream one frame. Raises Fenced once the run was taken over."""
        await self.writer.emit("frame", frames.dump(frame))

    async def message(self, message: Message) -> None:
        """Stream a stored message whole: tool returns always, model answers in step mode."""
        for frame in frames.frames_of(message):
            await self.frame(frame)

    def step(self, message_id: uuid.UUID, step_id: uuid.UUID) -> StepStream:
        """Return the stream of one model call."""
        return StepStream(self, message_id, step_id)
