"""Accept a turn: store the user's message and a queued run in one transaction (architecture §5.1)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from redis.exceptions import RedisError

from agents.actor import Actor
from conversations.models import Conversation, Message, Run, RunCallback, RunStatus
from conversations.models.run import ACTIVE, UNENDED, key_of_otids
from conversations.services import approvals, queueing
from conversations.services.announce import announce
from conversations.services.approvals import ANSWERS, IncomingApproval
from conversations.services.dispatch import enqueue
from conversations.services.prompt import ensure_system_message
from conversations.wire import frames
from souveraine import ids
from souveraine.errors import ConversationBusy, NotFound, Unavailable
from souveraine.events.log import append
from souveraine.lib.crash_points import reached

HAS_URLS = "image_urls"  # in the run's request: one of its messages has an image only by its URL
PING_SEQ = 1  # the number of a stream's first event


@dataclass(frozen=True)
class IncomingMessage:
    """One message of a send request. `content` is None when `text` says it all."""

    role: str
    text: str
    content: list[dict[str, Any]] | None = None
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None


Incoming = IncomingMessage | IncomingApproval


@dataclass(frozen=True)
class TurnOptions:
    """What a send request asks of its run; stored with it, so a worker needs nothing else."""

    run_type: str = "send_conversation_message"
    max_steps: int = 50
    stream_tokens: bool = False
    background: bool = False
    when_busy: str = "reject"  # or "queue"
    callback_url: str = ""
    override_model: str | None = None
    override_system: str | None = None
    include_return_message_types: list[str] | None = None
    include_compaction_messages: bool = False
    client_tools: list[dict[str, Any]] = field(default_factory=list)
    client_skills: list[dict[str, str]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def as_request(self) -> dict[str, Any]:
        """Return the JSON kept on the run."""
        return {
            "run_type": self.run_type,
            "max_steps": self.max_steps,
            "stream_tokens": self.stream_tokens,
            "override_model": self.override_model,
            "override_system": self.override_system,
            "include_return_message_types": self.include_return_message_types,
            "include_compaction_messages": self.include_compaction_messages,
            **({"has_callback": True} if self.callback_url else {}),
            **({"client_tools": self.client_tools} if self.client_tools else {}),
            **({"client_skills": self.client_skills} if self.client_skills else {}),
            **self.extra,
        }


@dataclass(frozen=True)
class Accepted:
    """The run of a send request; `is_new` is False when the same request was accepted before."""

    run: Run
    is_new: bool


def request_key(messages: Sequence[Incoming]) -> str:
    """Return the idempotency key: a hash of the client's otids, or "" when it gave none (contract §4.4)."""
    otids = [m.otid for m in messages if m.otid]
    return key_of_otids(otids) if otids and len(otids) == len(messages) else ""


def accept_turn(
    actor: Actor, conversation: Conversation, messages: Sequence[Incoming], options: TurnOptions
) -> Accepted:
    """Store the messages and a queued run, start its stream and enqueue it.

    The same otids again give the first run, live or ended; a failed one is tried again on the messages
    already stored; so does the same decision again. While another run lives, `when_busy` "queue" lets this one
    wait for its turn. Raises ConversationBusy (with the run's id), QueueFull, NotFound (deleted meanwhile), and
    PendingApproval, NothingPending, InvalidToolCallIds and InvalidArgument (approvals).
    """
    key = request_key(messages)
    if _has_image_urls(messages):
        options = replace(options, extra={**options.extra, HAS_URLS: True})
    try:
        accepted = _store(actor, conversation.pk, messages, options, key)
    except IntegrityError:  # lost the race for the one live run
        live = Run.objects.filter(conversation=conversation, status__in=ACTIVE).first()
        if live is None:
            raise
        raise ConversationBusy(f"run-{live.pk}") from None
    if accepted.is_new and accepted.run.status == RunStatus.QUEUED:
        try:
            hand_over_run(accepted.run)
        except RedisError as exc:
            raise _stored_but_unseen(accepted.run) from exc
    return accepted


def _has_image_urls(messages: Sequence[Incoming]) -> bool:
    """Tell whether the worker has images to fetch."""
    parts = [p for m in messages if isinstance(m, IncomingMessage) for p in m.content or ()]
    return any(p["type"] == "image" and p["source"]["type"] == "url" for p in parts)


def hand_over_run(run: Run) -> None:
    """Start the stream of a run that was just stored, and enqueue it. Raises RedisError."""
    reached("after_accept")
    _begin_stream(run)
    announce(run.conversation_id, run.agent_id)
    reached("before_enqueue")
    enqueue(run.pk)
    reached("after_enqueue")


def _begin_stream(run: Run) -> None:
    append(run.pk, 0, [("ping", frames.dump(frames.ping_frame(run.pk, run.created_at)))])


def _stored_but_unseen(run: Run) -> Unavailable:
    return Unavailable(
        "Your message is stored and will be answered, but Redis does not answer, so the turn cannot be followed "
        "now. Do not send it again; list the messages in a while.",
        run_id=f"run-{run.pk}",
    )


@transaction.atomic
def _store(
    actor: Actor,
    conversation_id: uuid.UUID,
    messages: Sequence[Incoming],
    options: TurnOptions,
    key: str,
) -> Accepted:
    conversation = (
        Conversation.objects.select_for_update()
        .filter(pk=conversation_id, deleted_at__isnull=True)
        .first()
    )
    if conversation is None:
        raise NotFound(
            f"Conversation not found with id='{ids.make(ids.CONVERSATION, conversation_id)}'"
        )
    earlier = (
        Run.objects.filter(conversation=conversation, request_key=key)
        .order_by("-created_at")
        .first()
        if key
        else None
    )
    if earlier is not None and not _may_retry(conversation, earlier):
        return Accepted(earlier, is_new=False)
    decisions = [m for m in messages if isinstance(m, IncomingApproval)] if earlier is None else []
    if decisions:
        if conversation.pending_message_id is None:
            return Accepted(approvals.repeated(conversation, decisions), is_new=False)
        _refuse_while_live(conversation)
    elif _must_wait(conversation, options, is_retry=earlier is not None):
        return Accepted(_wait(conversation, messages, options, key), is_new=True)
    if not conversation.last_sequence:  # the worker refreshes it; here it only has to come first
        ensure_system_message(conversation)
    first = conversation.last_sequence + 1 if earlier is None else earlier.first_sequence
    run = Run.objects.create(
        conversation=conversation,
        agent_id=conversation.agent_id,
        background=options.background,
        request=_request(options, earlier),
        request_key=key,
        first_sequence=first,
        event_number=conversation.last_event_number + 1,
        last_event_seq=PING_SEQ,
    )
    _keep_callback(run, options)
    if earlier is None:
        _append_messages(conversation, run, messages)
    conversation.last_event_number += 1
    if decisions:
        approvals.decide(actor, conversation, run, decisions)
        run.save(update_fields=["request"])
    conversation.last_updated_by = actor.user_id
    conversation.last_message_at = conversation.updated_at = timezone.now()
    conversation.save(
        update_fields=[
            "last_sequence",
            "last_event_number",
            "last_updated_by",
            "last_message_at",
            "updated_at",
            "pending_message_id",
        ]
    )
    reached("in_accept")
    return Accepted(run, is_new=True)


def _refuse_while_live(conversation: Conversation) -> None:
    """Raise ConversationBusy while the run that asks has not ended; what waits does not stand in the way."""
    live = Run.objects.filter(conversation=conversation, status__in=ACTIVE).first()
    if live is not None:
        raise ConversationBusy(f"run-{live.pk}")


def _must_wait(conversation: Conversation, options: TurnOptions, *, is_retry: bool) -> bool:
    """Tell whether the send has to wait for others.

    Raises PendingApproval or ConversationBusy when it does not want to.
    """
    may_wait, is_pending = (
        options.when_busy == "queue" and not is_retry,  # what a retry answers is said already
        queueing.is_waiting_for_approval(conversation),
    )
    if is_pending and not may_wait and not is_retry:
        raise approvals.pending_error(conversation)
    ahead = Run.objects.filter(conversation=conversation, status__in=UNENDED)
    by_turn = ahead.order_by("status", "first_sequence")  # "waiting" sorts last
    first = by_turn.values_list("pk", flat=True).first()
    if first is not None and not may_wait:
        raise ConversationBusy(f"run-{first}")
    return first is not None or (may_wait and is_pending)


def _wait(
    conversation: Conversation, messages: Sequence[Incoming], options: TurnOptions, key: str
) -> Run:
    """Store a run that waits, with its messages, and start its stream. Raises QueueFull and RedisError.

    The stream comes before the commit: right after it, a worker may have the run and write to it.
    """
    kept = [
        {**asdict(m), "otid": m.otid or str(uuid.uuid4())}
        for m in messages
        if isinstance(m, IncomingMessage)
    ]
    run = Run.objects.create(
        conversation=conversation,
        agent_id=conversation.agent_id,
        status=RunStatus.WAITING,
        background=options.background,
        request={**options.as_request(), queueing.MESSAGES: kept},
        request_key=key,
        first_sequence=queueing.take_place(conversation),
        last_event_seq=PING_SEQ,
    )
    _keep_callback(run, options)
    _begin_stream(run)
    return run


def _keep_callback(run: Run, options: TurnOptions) -> None:
    if options.callback_url:
        RunCallback.objects.create(run=run, url=options.callback_url)


def _request(options: TurnOptions, earlier: Run | None) -> dict[str, Any]:
    """Return what the run keeps of the request; a repeated one answers the same message as before."""
    request = options.as_request()
    if earlier is not None and ANSWERS in earlier.request:
        request[ANSWERS] = earlier.request[ANSWERS]
    return request


def _may_retry(conversation: Conversation, earlier: Run) -> bool:
    """Tell whether the same request may run again: it failed, and nothing was said since."""
    if earlier.status != RunStatus.FAILED:
        return False
    return not Run.objects.filter(
        conversation=conversation, first_sequence__gt=earlier.first_sequence
    ).exists()


def begin_with(conversation: Conversation, messages: Sequence[Incoming]) -> None:
    """Store what is said before the first turn; the model is not called. Not idempotent."""
    with transaction.atomic():
        locked = Conversation.objects.select_for_update().get(pk=conversation.pk)
        _append_messages(locked, None, messages)
        locked.save(update_fields=["last_sequence"])


def _append_messages(
    conversation: Conversation, run: Run | None, messages: Sequence[Incoming]
) -> None:
    rows = []
    for message in messages:
        conversation.last_sequence += 1
        row = Message(
            conversation=conversation,
            agent_id=conversation.agent_id,
            sequence=conversation.last_sequence,
            role=message.role,
            otid=message.otid,
            run=run,
        )
        if isinstance(message, IncomingApproval):
            row.approvals = message.body
        else:
            row.text, row.content = message.text, message.content
            row.name, row.sender_id = message.name, message.sender_id
            row.otid = message.otid or str(uuid.uuid4())
        rows.append(row)
    Message.objects.bulk_create(rows)
