"""Tool calls that wait for a client: what it decides, what it returns, and what happens when nobody answers.

A waiting call is a row of the journal (`ToolCall.gate`); `Conversation.pending_message_id` names its
message, so that accepting a turn needs no query to know. A decision is stored with the run that brings it;
the worker carries it out like any other call, so a crash in between loses and doubles nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agents.actor import Actor
from agents.services.approvals import remember
from conversations.models import Conversation, Message, Run, ToolCall
from conversations.models.run import ACTIVE
from conversations.services.queueing import activate_next
from souveraine import ids
from souveraine.errors import (
    Conflict,
    InvalidArgument,
    InvalidToolCallIds,
    NothingPending,
    PendingApproval,
)

ANSWERS = "answers"  # key of Run.request: the id of the message whose calls the run answers
# Key of Run.request: the first sequence of a turn that goes on in this run.
TURN_BEGAN = "turn_began"
EXPIRED = "Nobody decided in time, so the call was never made."
WITHDRAWN = "The request was cancelled before anybody decided."
NOT_RUN = "The call was not made: the calls beside it were not allowed."
SETTLED = (ToolCall.State.DECIDED, ToolCall.State.STARTED, ToolCall.State.RETURNED)


@dataclass(frozen=True)
class Decision:
    """What a client says about one call; `call_id` None means every pending one.

    `value` is what the journal keeps (see ToolCall). `remember` keeps it for later calls of the tool.
    """

    call_id: str | None
    value: dict[str, Any]
    remember: bool = False


@dataclass(frozen=True)
class IncomingApproval:
    """One approval message of a send request; `body` is what the lists show of it."""

    decisions: tuple[Decision, ...]
    body: dict[str, Any]
    request_id: str | None = None  # a message id or call id given by the deprecated form
    otid: str | None = None
    role: str = field(default=Message.Role.APPROVAL, init=False)


def denial_text(reason: str | None) -> str:
    """Return the tool return of a denied call (contract §4.5)."""
    return "Error: request to call tool denied." + (f" User reason: {reason}" if reason else "")


def open_calls(conversation: Conversation, message: Message, gates: list[str], run: Run) -> None:
    """Journal the calls of a stored answer that wait for a client. In the transaction that stores it.

    `gates` has one entry per call, "" for calls that wait for nobody. The caller saves the conversation.
    """
    expires = timezone.now() + timedelta(
        seconds=settings.CONFIG["SOUVERAINE_APPROVAL_TIMEOUT_SECONDS"]
    )
    ToolCall.objects.bulk_create(
        ToolCall(
            conversation=conversation,
            message_id=message.id,
            position=position,
            run=run,
            name=message.tool_calls[position]["name"],
            state=ToolCall.State.WAITING,
            gate=gate,
            expires_at=expires,
        )
        for position, gate in enumerate(gates)
        if gate
    )
    conversation.pending_message_id = message.id


def pending_error(conversation: Conversation) -> PendingApproval:
    """Build the refusal of a message that is no decision."""
    return PendingApproval(str(ids.make(ids.MESSAGE, conversation.pending_message_id)))


def is_waiting(message_id: uuid.UUID) -> bool:
    """Tell whether calls of the message still wait for a client."""
    return ToolCall.objects.filter(message_id=message_id, state=ToolCall.State.WAITING).exists()


def decide(
    actor: Actor, conversation: Conversation, run: Run, approvals: list[IncomingApproval]
) -> None:
    """Store the decisions about all pending calls, to be carried out by `run`.

    Call it with the conversation's row locked. Raises InvalidToolCallIds and InvalidArgument.
    """
    message = _pending_message(conversation)
    waiting = list(
        ToolCall.objects.filter(message_id=message.id, state=ToolCall.State.WAITING).order_by(
            "position"
        )
    )
    by_id = {message.tool_calls[entry.position]["id"]: entry for entry in waiting}
    decisions = _by_call(approvals, list(by_id), message)
    now = timezone.now()
    for call_id, entry in by_id.items():
        decision = decisions[call_id]
        if entry.gate == ToolCall.Gate.CLIENT and decision.value["type"] == "approve":
            raise InvalidArgument(
                f"{entry.name} runs at the client, so it cannot be approved: run it and send its return "
                '({"type": "tool", "tool_call_id": …, "tool_return": …}), or deny it.'
            )
        entry.state, entry.decision, entry.run = ToolCall.State.DECIDED, decision.value, run
        entry.decided_at, entry.decided_by = now, actor.user_id
        if decision.remember and entry.gate == ToolCall.Gate.APPROVAL:
            remember(actor, conversation.agent, entry.name, decision.value)
    ToolCall.objects.bulk_update(waiting, ["state", "decision", "run", "decided_at", "decided_by"])
    conversation.pending_message_id = None
    run.request = {**run.request, ANSWERS: str(message.id), TURN_BEGAN: _turn_began(message)}


def _turn_began(message: Message) -> int:
    """Return the first sequence of the turn that asked, which earlier decisions may have carried on."""
    asked_by = Run.objects.filter(pk__in=[message.run_id] if message.run_id else []).values_list(
        "request", "first_sequence"
    )
    request, first = asked_by.first() or ({}, message.sequence)
    return int(request.get(TURN_BEGAN) or first)


def _pending_message(conversation: Conversation) -> Message:
    assert conversation.pending_message_id is not None
    return Message.objects.get(id=conversation.pending_message_id)


def _by_call(
    approvals: list[IncomingApproval], expected: list[str], message: Message
) -> dict[str, Decision]:
    """Return the decision for each expected call id. Raises InvalidToolCallIds unless they match."""
    found: dict[str, Decision] = {}
    received: list[str] = []
    is_consistent = True
    for approval in approvals:
        names = {ids.make(ids.MESSAGE, message.id), str(message.id), None}
        covers_all = approval.request_id in names
        for decision in approval.decisions:
            call_ids = [decision.call_id] if decision.call_id is not None else expected
            if decision.call_id is None and not covers_all:
                call_ids = [str(approval.request_id)]
            for call_id in call_ids:
                received.append(call_id)
                is_consistent &= found.setdefault(call_id, decision).value == decision.value
    if set(found) != set(expected) or not is_consistent:
        raise InvalidToolCallIds(expected, received)
    return found


def repeated(conversation: Conversation, approvals: list[IncomingApproval]) -> Run:
    """Return the run that brought the same decisions before, for an answer that comes again.

    Raises NothingPending when it fits no earlier decision, Conflict when it contradicts the last one.
    """
    last = (
        ToolCall.objects.filter(conversation=conversation, decided_at__isnull=False)
        .order_by("-decided_at")
        .first()
    )
    message = Message.objects.filter(id=last.message_id).first() if last else None
    if last is None or message is None:
        raise NothingPending("Send a message instead.")
    entries = list(
        ToolCall.objects.filter(message_id=message.id, decided_at__isnull=False).order_by(
            "position"
        )
    )
    by_id = {message.tool_calls[entry.position]["id"]: entry for entry in entries}
    try:
        decisions = _by_call(approvals, list(by_id), message)
    except InvalidToolCallIds:
        raise NothingPending("The call may have been cancelled, or it was never made.") from None
    differing = [e.name for call_id, e in by_id.items() if decisions[call_id].value != e.decision]
    if last.run is None:
        raise Conflict(
            "The request was decided before, and the record of its run was deleted. Send a message instead.",
            pending_request_id=None,
        )
    if differing:
        raise Conflict(
            f"The request was decided before, otherwise than now ({', '.join(differing)}); the first decision stays.",
            pending_request_id=None,
        )
    return last.run


def settle(conversation_id: uuid.UUID, message_id: uuid.UUID, reason: str) -> bool:
    """End the pending request that the message makes, without a client: every open call gets a denial that says why.

    No model call follows; the next message, which may be waiting, goes on from there. Returns False when
    this one is not pending (any more). Idempotent, and safe against a decision at the same moment: the
    conversation's row is locked.
    """
    with transaction.atomic():
        conversation = Conversation.objects.select_for_update().filter(pk=conversation_id).first()
        if conversation is None or conversation.pending_message_id != message_id:
            return False
        message = _pending_message(conversation)
        known = {e.position: e for e in ToolCall.objects.filter(message_id=message.id)}
        for position in range(len(message.tool_calls)):
            entry = known.get(position)
            if entry is None or entry.state == ToolCall.State.WAITING:
                _settle_one(conversation, message, position, entry, reason)
        conversation.pending_message_id = None
        conversation.save(update_fields=["last_sequence", "pending_message_id"])
        if not Run.objects.filter(conversation=conversation, status__in=ACTIVE).exists():
            activate_next(conversation.pk)
    return True


def _settle_one(
    conversation: Conversation,
    message: Message,
    position: int,
    entry: ToolCall | None,
    reason: str,
) -> None:
    call, now = message.tool_calls[position], timezone.now()
    entry = entry or ToolCall(
        conversation=conversation, message_id=message.id, position=position, name=call["name"]
    )
    if entry.gate:
        entry.decision, entry.decided_at = {"type": "deny", "reason": reason}, now
    entry.state, entry.status, entry.returned_at = ToolCall.State.RETURNED, "error", now
    entry.save()
    conversation.last_sequence += 1
    Message.objects.create(
        conversation=conversation,
        agent_id=conversation.agent_id,
        sequence=conversation.last_sequence,
        role=Message.Role.TOOL,
        text=denial_text(reason) if entry.gate else NOT_RUN,
        tool_call_id=call["id"],
        name=call["name"],
        status="error",
        run_id=message.run_id,
        step_id=message.step_id,
    )


def withdraw(conversations: Iterable[Conversation], run_ids: Collection[uuid.UUID] | None) -> int:
    """Cancel pending requests, or only those that the named runs have made; returns how many."""
    count = 0
    for conversation in conversations:
        message_id = conversation.pending_message_id
        if message_id is None:
            continue
        asked_by = Message.objects.filter(id=message_id).values_list("run_id", flat=True).first()
        if run_ids is None or asked_by in run_ids:
            count += settle(conversation.pk, message_id, WITHDRAWN)
    return count


def expire() -> int:
    """Deny what nobody decided in time; returns how many requests. Any number of workers may call it at once."""
    overdue = ToolCall.objects.filter(
        state=ToolCall.State.WAITING, expires_at__lt=timezone.now()
    ).values_list("conversation_id", "message_id")[:100]
    return sum(settle(*pending, EXPIRED) for pending in set(overdue))
