"""Letta message frames. Key order and dates as the old server sends them (contract letta-api §1.3, §4.3)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from conversations.models import Message
from souveraine import ids

Frame = dict[str, Any]


def otid_of(message_id: uuid.UUID, index: int) -> str:
    """Return the otid of part `index`: the message's UUID with its last 7 bits replaced."""
    return str(uuid.UUID(int=(message_id.int & ~0x7F) | (index & 0x7F)))


def part_otid(message_type: str, message_id: uuid.UUID, index: int) -> str:
    """Return the otid of part `index`; an approval request has its message id there (contract §4.3)."""
    if message_type == "approval_request_message":
        return str(ids.make(ids.MESSAGE, message_id))
    return otid_of(message_id, index)


def date_of(moment: datetime) -> str:
    """Write a message date: seconds, with offset."""
    return moment.replace(microsecond=0).isoformat()


def base_frame(
    message_type: str,
    *,
    message_id: uuid.UUID | str,
    date: datetime,
    otid: str | None = None,
    step_id: uuid.UUID | None = None,
    run_id: uuid.UUID | None = None,
    name: str | None = None,
    sender_id: str | None = None,
    is_err: bool | None = None,
) -> Frame:
    """Return the nine keys that every message frame has, in order; nulls are kept."""
    return {
        "id": message_id if isinstance(message_id, str) else ids.make(ids.MESSAGE, message_id),
        "date": date_of(date),
        "name": name,
        "message_type": message_type,
        "otid": otid,
        "sender_id": sender_id,
        "step_id": ids.make(ids.STEP, step_id),
        "is_err": is_err,
        "seq_id": None,
        "run_id": ids.make(ids.RUN, run_id),
    }


def dump(frame: Frame) -> bytes:
    """Encode a frame as compact one-line JSON."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode()


def ping_frame(run_id: uuid.UUID, date: datetime) -> Frame:
    """Return a keep-alive frame."""
    return base_frame("ping", message_id=f"ping-{uuid.uuid4()}", date=date, run_id=run_id)


def stop_reason_frame(stop_reason: str) -> Frame:
    """Return the frame that names why the turn stopped."""
    return {"message_type": "stop_reason", "stop_reason": stop_reason}


def usage_frame(usage: dict[str, Any]) -> Frame:
    """Return the usage frame; token counts are sums over steps, `context_tokens` the last step's."""
    return {
        "message_type": "usage_statistics",
        "completion_tokens": usage.get("completion_tokens", 0),
        "prompt_tokens": usage.get("prompt_tokens", 0),
        "total_tokens": usage.get("total_tokens", 0),
        "step_count": usage.get("step_count", 0),
        "run_ids": None,
        "cached_input_tokens": usage.get("cached_input_tokens"),
        "cache_write_tokens": None,
        "reasoning_tokens": usage.get("reasoning_tokens"),
        "context_tokens": usage.get("context_tokens"),
    }


def error_frame(run_id: uuid.UUID | None, error: dict[str, Any]) -> Frame:
    """Return the frame sent under `event: error`."""
    return {
        "message_type": "error_message",
        "run_id": ids.make(ids.RUN, run_id),
        "error_type": error.get("error_type", "internal_error"),
        "message": error.get("message", "An error occurred during agent execution."),
        "detail": error.get("detail"),
        "seq_id": None,
    }


def terminal_entries(
    run_id: uuid.UUID, stop_reason: str, usage: dict[str, Any], error: dict[str, Any] | None
) -> list[tuple[str, bytes]]:
    """Return the events that end a stream: stop_reason, usage or error, end (contract §4.3).

    A cancelled one has neither usage nor error, and spaced JSON, as on the old server (golden 77).
    """
    end = ("end", json.dumps({"stop_reason": stop_reason}).encode())
    if stop_reason == "cancelled":
        return [("frame", json.dumps(stop_reason_frame(stop_reason)).encode()), end]
    entries = [("frame", dump(stop_reason_frame(stop_reason)))]
    if error is not None:
        entries.append(("error", dump(error_frame(run_id, error))))
    else:
        entries.append(("frame", dump(usage_frame(usage))))
    return [*entries, end]


def compaction_event_frame(
    event_id: uuid.UUID | str,
    date: datetime,
    run_id: uuid.UUID | None,
    trigger: str,
    context_tokens: int,
    context_window: int,
) -> Frame:
    """Say that older messages are about to give way to a summary; its id is a bare UUID (contract §1.3)."""
    base = base_frame("event_message", message_id=str(event_id), date=date, run_id=run_id)
    data = {
        "trigger": trigger,
        "context_token_estimate": context_tokens,
        "context_window": context_window,
    }
    return {**base, "event_type": "compaction", "event_data": data}


def turn_frames_of(message: Message) -> list[Frame]:
    """Return what a turn's stream has of one row: before a summary there is the event that announced it."""
    done = message.compaction
    if not done:
        return frames_of(message)
    event = compaction_event_frame(
        done["event_id"],
        message.created_at,
        message.run_id,
        done["trigger"],
        done["context_tokens_before"],
        done["context_window"],
    )
    return [event, *frames_of(message)]


def retracted_frame(message_id: str, run_id: uuid.UUID, date: datetime) -> Frame:
    """Say that what was streamed under `message_id` is void: the step is made again after a crash."""
    frame = base_frame("souveraine_retracted", message_id=message_id, date=date, run_id=run_id)
    return frame


def _content_of(message: Message) -> Any:
    return message.content if message.content else message.text


def tool_call_dict(call: dict[str, Any]) -> dict[str, Any]:
    """Return a whole tool call as the wire has it."""
    return {"name": call["name"], "arguments": call["arguments"], "tool_call_id": call["id"]}


def tool_return_fields(message: Message) -> Frame:
    """Return the type fields of a tool_return_message."""
    body = {
        "tool_return": message.text,
        "status": message.status or "success",
        "tool_call_id": message.tool_call_id,
        "stdout": message.stdout,
        "stderr": message.stderr,
    }
    return {**body, "tool_returns": [{"type": "tool", **body}]}


def in_approval_order(body: dict[str, Any]) -> Frame:
    """Return the type fields of an approval_response_message in the contract's order."""
    return {key: body.get(key) for key in ("approvals", "approve", "approval_request_id", "reason")}


def approval_request(message: Message) -> Frame | None:
    """Return the request that a message with waiting calls makes of the client."""
    kind = "approval_request_message"
    return next((f for f in assistant_frames(message) if f["message_type"] == kind), None)


def assistant_frames(message: Message) -> list[Frame]:
    """Split an assistant row into reasoning, text and tool calls, with otids counted over what is there."""
    parts: list[tuple[str, Frame]] = []
    if message.reasoning:
        parts.append(
            (
                "reasoning_message",
                {"source": "reasoner_model", "reasoning": message.reasoning, "signature": None},
            )
        )
    if message.text or message.content:
        parts.append(("assistant_message", {"content": _content_of(message)}))
    for kind, is_gated in (("tool_call_message", False), ("approval_request_message", True)):
        calls = [tool_call_dict(c) for c in message.tool_calls if bool(c.get("gate")) == is_gated]
        if calls:
            parts.append((kind, {"tool_call": calls[0], "tool_calls": calls}))
    return [
        {
            **base_frame(
                kind,
                message_id=message.id,
                date=message.created_at,
                otid=part_otid(kind, message.id, index),
                step_id=message.step_id,
                run_id=message.run_id,
                name=message.name,
                sender_id=message.sender_id,
            ),
            **fields,
            **({"_souveraine": {"partial": True}} if message.status == "partial" else {}),
        }
        for index, (kind, fields) in enumerate(parts)
    ]


def frames_of(message: Message) -> list[Frame]:
    """Return the wire messages of one row (an assistant row can be several)."""
    if message.role == Message.Role.ASSISTANT:
        return assistant_frames(message)
    kinds = {
        Message.Role.SYSTEM: "system_message",
        Message.Role.USER: "user_message",
        Message.Role.TOOL: "tool_return_message",
        Message.Role.SUMMARY: "summary_message",
        Message.Role.APPROVAL: "approval_response_message",
    }
    kind = kinds[Message.Role(message.role)]
    otid = otid_of(message.id, 0) if message.role == Message.Role.TOOL else message.otid
    if message.role == Message.Role.APPROVAL:
        otid = None
    frame = base_frame(
        kind,
        message_id=message.id,
        date=message.created_at,
        otid=otid,
        step_id=message.step_id,
        run_id=message.run_id,
        name=message.name,
        sender_id=message.sender_id,
    )
    if kind == "tool_return_message":
        return [{**frame, **tool_return_fields(message)}]
    if kind == "approval_response_message":
        return [{**frame, **in_approval_order(message.approvals or {})}]
    if kind == "summary_message":
        return [{**frame, "summary": message.text, "compaction_stats": _stats_of(message)}]
    return [{**frame, "content": _content_of(message) if kind == "user_message" else message.text}]


def letta_response(
    messages: Iterable[Message],
    stop_reason: str,
    usage: dict[str, Any],
    types: Iterable[str] | None = None,
) -> Frame:
    """Return LettaResponse: what an ended turn produced (contract §4.2)."""
    return {
        "messages": frames_of_all(messages, types, is_turn=True),
        "stop_reason": stop_reason_frame(stop_reason or "error"),
        "usage": usage_frame(usage),
        "logprobs": None,
        "turns": None,
    }


STATS = (
    "trigger",
    "context_tokens_before",
    "context_tokens_after",
    "context_window",
    "messages_count_before",
    "messages_count_after",
)


def _stats_of(message: Message) -> dict[str, Any] | None:
    done = message.compaction
    return {name: done[name] for name in STATS} if done else None


def frames_of_all(
    messages: Iterable[Message], types: Iterable[str] | None = None, *, is_turn: bool = False
) -> list[Frame]:
    """Return the wire messages of rows in order, of the wanted types only; `is_turn`: as a turn sends them."""
    wanted = set(types) if types else None
    of = turn_frames_of if is_turn else frames_of
    return [f for m in messages for f in of(m) if wanted is None or f["message_type"] in wanted]
