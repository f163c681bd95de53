"""Reads of conversations, messages, runs and steps. Every one takes an actor; cost is one page."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import Any, Literal

from django.db.models import Q, QuerySet

from agents.actor import Actor
from agents.models import Agent
from conversations.lineage import is_inherited, lineage_page, shown_in
from conversations.models import Conversation, Message, Run, RunStatus, Step
from conversations.models.run import UNENDED, key_of_otids
from conversations.services.prompt import SYSTEM_SEQUENCE
from conversations.services.queueing import MESSAGES, waiting_runs
from conversations.wire.kinds import rows_with
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.errors import NotFound
from souveraine.lib.tags import with_tags

STATUSES = {
    "created": (RunStatus.WAITING, RunStatus.QUEUED),
    "running": (RunStatus.RUNNING,),
    "completed": (RunStatus.COMPLETED,),
    "failed": (RunStatus.FAILED, RunStatus.INTERRUPTED),
    "cancelled": (RunStatus.CANCELLED,),
}  # Letta's names
STEP_LOOKUPS = {
    "agent_id": "agent_id",
    "model": "model",
    "feedback": "feedback",
    "start_date": "created_at__gte",
    "end_date": "created_at__lte",
}


def conversations_of(actor: Actor) -> QuerySet[Conversation]:
    """Return the conversations that the actor may use."""
    return Conversation.objects.filter(agent__owner=actor.user, deleted_at__isnull=True)


def get_conversation(actor: Actor, conversation_id: uuid.UUID) -> Conversation:
    """Return one conversation with its agent. Raises NotFound."""
    found = conversations_of(actor).select_related("agent").filter(pk=conversation_id).first()
    if found is None:
        raise NotFound(
            f"Conversation not found with id='{ids.make(ids.CONVERSATION, conversation_id)}'"
        )
    return found


def list_conversations(
    actor: Actor,
    *,
    agent: Agent | None,
    field: Literal["created_at", "last_message_at", "last_run_completion"],
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
    summary_search: str | None = None,
    archive_status: str = "all",
) -> list[Conversation]:
    """Return one page; an agent's default conversation is not listed, as on the old server, nor a hidden one."""
    queryset = conversations_of(actor).filter(is_default=False, hidden=False)
    if archive_status != "all":
        queryset = queryset.filter(archived_at__isnull=archive_status == "unarchived")
    if agent is not None:
        queryset = queryset.filter(agent=agent)
    if summary_search:
        queryset = queryset.filter(summary__icontains=summary_search)
    return page(
        queryset,
        field=field,
        ascending=ascending,
        limit=limit,
        after=get_conversation(actor, after) if after else None,
        before=get_conversation(actor, before) if before else None,
    )


def in_context_ids(conversation: Conversation) -> list[str]:
    """Return the ids of the messages of the prompt window: the system message, the summary, then the others."""
    start = max(conversation.window_start, SYSTEM_SEQUENCE + 1)
    rows = Message.objects.filter(
        Q(sequence=SYSTEM_SEQUENCE, conversation=conversation) | shown_in(conversation, start)
    )
    window = list(rows.order_by("sequence").values_list("id", "role", "sequence"))
    system = [pk for pk, _, sequence in window if sequence == SYSTEM_SEQUENCE]
    summaries = [pk for pk, role, _ in window if role == Message.Role.SUMMARY]
    others = [
        pk for pk, role, sequence in window if role != Message.Role.SUMMARY and sequence >= start
    ]
    return [str(ids.make(ids.MESSAGE, pk)) for pk in (*system, *summaries[-1:], *others)]


def _message_cursor(queryset: QuerySet[Message], text: str | None, whose: str) -> Message | None:
    if text is None:
        return None
    message_id = ids.parse(ids.MESSAGE, text)
    found = queryset.filter(id=message_id).only("row", "sequence").first()
    if found is None:
        raise NotFound(f"No message found with id 'message-{message_id}' for {whose}.")
    return found


def list_conversation_messages(
    conversation: Conversation,
    *,
    ascending: bool,
    limit: int,
    after: str | None,
    before: str | None,
    types: Collection[str] | None = None,
) -> list[Message]:
    """Return one page in the requested order (decision 0001), of rows that give one of the message types.

    Under desc both `after=X` and `before=X` mean older than X; under asc `after` is newer, `before` older.
    """
    queryset = Message.objects.filter(shown_in(conversation))
    whose = f"conversation 'conv-{conversation.pk}'"
    newer_than = _message_cursor(queryset, after if ascending else None, whose)
    older = _message_cursor(queryset, before, whose) or _message_cursor(
        queryset, None if ascending else after, whose
    )
    nearest_older = ascending and older is not None and newer_than is None
    rows = lineage_page(
        conversation,
        where=rows_with(types),
        ascending=ascending and not nearest_older,
        limit=limit,
        newer_than=newer_than.sequence if newer_than else None,
        older_than=older.sequence if older else None,
    )
    return rows[::-1] if nearest_older else rows


def list_agent_messages(
    agent: Agent,
    *,
    conversation: Conversation | None,
    ascending: bool,
    limit: int,
    after: str | None,
    before: str | None,
    types: Collection[str] | None = None,
) -> list[Message]:
    """Return the old server's form of a page: `order` picks newest or oldest N, output is oldest first.

    Cursors are chronological. Without `conversation` all conversations of the agent are included.
    """
    queryset = Message.objects.filter(agent=agent, conversation__deleted_at__isnull=True)
    if conversation is not None:
        queryset = Message.objects.filter(shown_in(conversation))
    whose = f"agent 'agent-{agent.pk}'"
    newer, older = _message_cursor(queryset, after, whose), _message_cursor(queryset, before, whose)
    if conversation is not None:
        page_ = lineage_page(
            conversation,
            where=rows_with(types),
            ascending=ascending,
            limit=limit,
            newer_than=newer.sequence if newer else None,
            older_than=older.sequence if older else None,
        )
        return page_ if ascending else page_[::-1]
    if newer is not None:
        queryset = queryset.filter(row__gt=newer.row)
    if older is not None:
        queryset = queryset.filter(row__lt=older.row)
    rows = list(queryset.filter(rows_with(types)).order_by("row" if ascending else "-row")[:limit])
    return rows if ascending else rows[::-1]


def list_all_messages(
    actor: Actor,
    *,
    conversation: Conversation | None,
    ascending: bool,
    limit: int,
    after: str | None,
    before: str | None,
    types: Collection[str] | None = None,
) -> list[Message]:
    """Return one page of the actor's messages in the requested order; cursors as in a conversation's list."""
    if conversation is not None:
        return list_conversation_messages(
            conversation, ascending=ascending, limit=limit, after=after, before=before, types=types
        )
    queryset = Message.objects.filter(
        agent__owner=actor.user, conversation__deleted_at__isnull=True
    )
    newer = _message_cursor(queryset, after if ascending else None, "you")
    older = _message_cursor(queryset, before, "you") or _message_cursor(
        queryset, None if ascending else after, "you"
    )
    if newer is not None:
        queryset = queryset.filter(row__gt=newer.row)
    if older is not None:
        queryset = queryset.filter(row__lt=older.row)
    nearest_older = ascending and older is not None and newer is None
    order = "row" if ascending and not nearest_older else "-row"
    rows = list(queryset.filter(rows_with(types)).order_by(order)[:limit])
    return rows[::-1] if nearest_older else rows


def runs_of(actor: Actor) -> QuerySet[Run]:
    """Return the runs that the actor may see."""
    return Run.objects.filter(agent__owner=actor.user).select_related("callback")


def get_run(actor: Actor, run_id: uuid.UUID) -> Run:
    """Return one run. Raises NotFound."""
    run = runs_of(actor).filter(pk=run_id).first()
    if run is None:
        raise NotFound(f"Run not found with id='{ids.make(ids.RUN, run_id)}'")
    return run


def steps_of(actor: Actor) -> QuerySet[Step]:
    """Return the steps that the actor may see."""
    return Step.objects.filter(agent__owner=actor.user)


def get_step(actor: Actor, step_id: uuid.UUID) -> Step:
    """Return one step. Raises NotFound."""
    step = steps_of(actor).filter(pk=step_id).first()
    if step is None:
        raise NotFound(f"Step not found with id='{ids.make(ids.STEP, step_id)}'")
    return step


def get_message(actor: Actor, message_id: uuid.UUID) -> Message:
    """Return one message, also of a deleted conversation that a fork has begun with. Raises NotFound."""
    found = Message.objects.filter(id=message_id, agent__owner=actor.user)
    message = found.select_related("conversation").first()
    if message is None or (message.conversation.deleted_at and not is_inherited(message)):
        raise NotFound(f"Message not found with id='{ids.make(ids.MESSAGE, message_id)}'")
    return message


def active_run(conversation: Conversation) -> Run | None:
    """Return the conversation's live run, else the next one that waits, if there is one."""
    return unended_runs(conversation).first()


def unended_runs(conversation: Conversation) -> QuerySet[Run]:
    """Return the conversation's live run and those that wait behind it, in order."""
    # A decision overtakes what waits, so places are compared among the waiting only ("waiting" sorts last).
    return Run.objects.filter(conversation=conversation, status__in=UNENDED).order_by(
        "status", "first_sequence"
    )


def run_of_otid(conversation: Conversation, otid: str) -> Run:
    """Return the run that a message with this otid started, said or still waiting. Raises NotFound."""
    message = (
        Message.objects.filter(conversation=conversation, otid=otid, run__isnull=False)
        .order_by("-sequence")
        .first()
    )
    if message is None or message.run is None:
        for run in waiting_runs(conversation.pk):
            if any(kept["otid"] == otid for kept in run.request[MESSAGES]):
                return run
        never_said = Run.objects.filter(conversation=conversation, request_key=key_of_otids([otid]))
        if (cancelled := never_said.order_by("-created_at").first()) is not None:
            return cancelled
        raise NotFound(f"No run found for otid '{otid[:100]}'.")
    return message.run


def run_messages(run: Run) -> list[Message]:
    """Return what the run produced, oldest first: not what a client has said, summaries when it asks for them."""
    roles = [Message.Role.ASSISTANT, Message.Role.TOOL]
    if run.request.get("include_compaction_messages"):
        roles.append(Message.Role.SUMMARY)
    rows = Message.objects.filter(run=run, role__in=roles).order_by("sequence")
    return [row for row in rows if not row.is_said]


def pending_messages(conversations: Iterable[Conversation]) -> dict[uuid.UUID, Message]:
    """Return {conversation id: the message whose calls wait for a client}; one query, or none."""
    waiting = {c.pending_message_id: c.pk for c in conversations if c.pending_message_id}
    if not waiting:
        return {}
    return {waiting[m.id]: m for m in Message.objects.filter(id__in=waiting)}


def pending_conversations(agent: Agent) -> list[tuple[Conversation, Message]]:
    """Return the conversations that wait for a client, with the message, oldest first."""
    waiting = Conversation.objects.filter(
        agent=agent, deleted_at__isnull=True, pending_message_id__isnull=False
    ).order_by("last_message_at", "created_at")
    messages = pending_messages(waiting)
    return [(c, messages[c.pk]) for c in waiting if c.pk in messages]


def agent_message_ids(agent: Agent) -> list[str]:
    """Return the default conversation's window ids, as `message_ids` of AgentState."""
    default = Conversation.objects.filter(agent=agent, is_default=True).first()
    return in_context_ids(default) if default else []


def latest_counters(agent: Agent) -> Conversation | None:
    """Return the agent's most recently used conversation (for the counters in AgentState)."""
    return (
        Conversation.objects.filter(agent=agent).order_by("-last_message_at", "-created_at").first()
    )


def list_run_messages(
    run: Run, *, ascending: bool, limit: int, after: str | None, before: str | None
) -> list[Message]:
    """Return one page of the run's messages, the user's own among them. Raises NotFound for a cursor."""
    queryset = Message.objects.filter(run=run)
    whose = f"run 'run-{run.pk}'"
    return page(
        queryset,
        field="sequence",
        ascending=ascending,
        limit=limit,
        after=_message_cursor(queryset, after, whose),
        before=_message_cursor(queryset, before, whose),
    )


def list_step_messages(
    step: Step, *, ascending: bool, limit: int, after: str | None, before: str | None
) -> list[Message]:
    """Return one page of the messages of a step: what was asked, the answer, what its tools returned."""
    queryset = Message.objects.filter(step_id=step.pk, agent_id=step.agent_id)
    whose = f"step 'step-{step.pk}'"
    return page(
        queryset,
        field="sequence",
        ascending=ascending,
        limit=limit,
        after=_message_cursor(queryset, after, whose),
        before=_message_cursor(queryset, before, whose),
    )


def step_filters(actor: Actor, filters: dict[str, Any]) -> QuerySet[Step]:
    """Apply Letta's step filters; nothing has a `trace_id` or `project_id`, so those find nothing."""
    queryset = steps_of(actor)
    for name, lookup in STEP_LOOKUPS.items():
        if filters.get(name) is not None:
            queryset = queryset.filter(**{lookup: filters[name]})
    if filters.get("has_feedback") is not None:
        queryset = queryset.filter(feedback__isnull=not filters["has_feedback"])
    if filters.get("tags"):
        queryset = with_tags(queryset, filters["tags"])
    if filters.get("trace_ids") or filters.get("project_id"):
        return queryset.none()
    return queryset


def run_filters(actor: Actor, filters: dict[str, Any]) -> QuerySet[Run]:
    """Apply Letta's run filters; `statuses` are Letta's names, `agent_ids` and `conversation_id` are UUIDs."""
    queryset = runs_of(actor)
    for name in ("background", "stop_reason", "conversation_id"):
        if filters.get(name) is not None:
            queryset = queryset.filter(**{name: filters[name]})
    if filters.get("agent_ids"):
        queryset = queryset.filter(agent_id__in=filters["agent_ids"])
    if filters.get("statuses"):
        statuses = [status for name in filters["statuses"] for status in STATUSES[name]]
        queryset = queryset.filter(status__in=statuses)
    if filters.get("active"):
        queryset = queryset.filter(status__in=UNENDED)
    return queryset
