"""The one place that moves the start of the prompt window; others only supply summaries (architecture §4).

Rows stay; a turn loads only what lies inside the window, so its cost does not grow with the history. The
window is the newest summary in it, if there is one, then its other messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from conversations.lineage import shown_in
from conversations.models import Conversation, Message, Run, Step
from conversations.services.runs import fenced

# What is looked at when a prompt is made; a field that is missing here costs a query per message.
IN_PROMPT = (
    "sequence",
    "role",
    "text",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "status",
    "otid",
    "created_at",
)
FOLLOWERS = (Message.Role.TOOL, Message.Role.APPROVAL)  # they belong to the message before them


@dataclass(frozen=True)
class Window:
    """What is in view. `rows` are without summaries and the compiled prompt, oldest first."""

    summary: Message | None
    rows: list[Message]

    @property
    def messages(self) -> list[Message]:
        """All of it in the order of the prompt."""
        return [self.summary, *self.rows] if self.summary else self.rows


def load_window(conversation: Conversation, *fields: str) -> Window:
    """Return the window; one query over what lies in it. `fields`: all that will be looked at, by default every one."""
    since = max(conversation.window_start, 2)
    found = Message.objects.filter(shown_in(conversation, since)).order_by("sequence")
    rows = list(found.only(*fields) if fields else found)
    summaries = [row for row in rows if row.role == Message.Role.SUMMARY]
    return Window(
        summaries[-1] if summaries else None,
        [row for row in rows if row.role != Message.Role.SUMMARY],
    )


def is_answered(rows: Sequence[Message]) -> bool:
    """Tell whether the last word is an answer: then the window may begin behind it."""
    if not rows or rows[-1].is_said:
        return False
    return rows[-1].role == Message.Role.ASSISTANT and not rows[-1].tool_calls


def _starts(rows: Sequence[Message]) -> list[int]:
    """Return where the window may begin: not between a call and its return.

    A decision on a call may bring a user's message, which then stands between the two.
    """
    found: list[int] = []
    open_calls: set[str] = set()
    for index, row in enumerate(rows):
        if row.role == Message.Role.ASSISTANT and not row.is_said:
            found.append(index)
            open_calls = {call["id"] for call in row.tool_calls}
        elif row.role == Message.Role.TOOL:
            open_calls.discard(row.tool_call_id)
        elif row.role not in FOLLOWERS and not open_calls:
            found.append(index)
    return found


def choose_start(
    rows: Sequence[Message],
    costs: Sequence[int],
    *,
    keep_tokens: int,
    most_tokens: int,
    may_empty: bool = False,
) -> int:
    """Return the index of the first row to keep, 0 when there is nothing to leave out.

    As much as fits `keep_tokens` stays, beginning with a user's message; else the newest turn when that
    fits `most_tokens`; else what fits of it. A call is never parted from its return, and the newest
    message stays (with `may_empty` nothing has to stay once all is answered).
    """
    starts = [i for i in _starts(rows) if i]
    if may_empty and is_answered(rows):
        starts.append(len(rows))
    if not starts:
        return 0
    at_user = [i for i in starts if i == len(rows) or rows[i].role == Message.Role.USER]
    tails = [0]
    for cost in reversed(costs):
        tails.append(tails[-1] + cost)
    tails.reverse()  # tails[i]: the cost of keeping all from i on
    fitting = [i for i in at_user if tails[i] <= keep_tokens]
    if fitting:
        return fitting[0]
    if at_user and tails[at_user[-1]] <= most_tokens:
        return at_user[-1]
    return next((i for i in starts if tails[i] <= keep_tokens), starts[-1])


@dataclass(frozen=True)
class Compaction:
    """A move of the window's start and what is to be remembered of it (CompactionStats on the wire)."""

    event_id: uuid.UUID
    trigger: str
    window_start: int
    context_window: int
    context_tokens_before: int
    context_tokens_after: int
    messages_count_before: int
    messages_count_after: int

    def as_json(self) -> dict[str, Any]:
        """Return the form kept on the summary."""
        return {**asdict(self), "event_id": str(self.event_id)}


def begin_with_summary(
    run: Run, text: str, compaction: Compaction, step: Step | None = None
) -> Message:
    """Store a summary and let the window begin with it, at `compaction.window_start`; one transaction.

    `step` is the model call that made it. Never moves back. Raises Fenced once the run was taken over.
    """
    with fenced(run):
        conversation = Conversation.objects.select_for_update().get(pk=run.conversation_id)
        conversation.last_sequence += 1
        if step is not None:
            step.save(force_insert=True)
        message = Message.objects.create(
            conversation=conversation,
            agent_id=run.agent_id,
            sequence=conversation.last_sequence,
            role=Message.Role.SUMMARY,
            text=text,
            compaction=compaction.as_json(),
            model=step.model_handle if step is not None and step.status == "success" else None,
            run=run,
            step_id=step.pk if step is not None else None,
        )
        conversation.window_start = max(conversation.window_start, compaction.window_start)
        conversation.context_tokens = compaction.context_tokens_after
        conversation.context_pressure = min(
            1.0, compaction.context_tokens_after / compaction.context_window
        )
        conversation.save(
            update_fields=["last_sequence", "window_start", "context_tokens", "context_pressure"]
        )
    return message


def summary_of(run: Run) -> Message | None:
    """Return the summary that the run has made last, if it made one."""
    return Message.objects.filter(run=run, role=Message.Role.SUMMARY).order_by("-sequence").first()
