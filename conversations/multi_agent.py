"""Messages between agents of one owner: the three multi-agent tools of Letta, with a guard against loops.

A message goes to the other agent's default conversation as a turn of its own, behind what waits there.
Each run knows through which agents it came about (`agent_chain`), so a chain of messages ends.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db.models import Count, Q

from agents.actor import KEYLESS_SCOPES, Actor
from agents.models import Agent
from agents.selectors import agents_of
from agents.tools.base import BuiltinTool, ToolContext, ToolError, schema, text
from conversations.models import Run, RunStatus
from conversations.models.run import UNENDED
from conversations.selectors import run_messages
from conversations.services.accept import IncomingMessage, TurnOptions, accept_turn
from conversations.services.cancel import cancel_runs
from conversations.services.sessions import default_conversation
from conversations.services.summaries import PROMPTS
from souveraine import ids
from souveraine.errors import SouveraineError
from souveraine.lib.prompts import load_prompt

MULTI_AGENT = "letta_multi_agent_core"
CHAIN = "agent_chain"
MAX_CHAIN = 5  # agents through which a message may have come about
MAX_RECIPIENTS = 20
MAX_MESSAGE_CHARS = 100_000
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.05, 1.0
MARGIN_SHARE = 0.1  # of a tool's time is kept to say that nobody has answered
FROM_AGENT = load_prompt(PROMPTS / "from_agent.md")
IT_WAITS = "It waits: what you answer with goes back to it."
NO_WAITING = "It does not wait. To answer it, use send_message_to_agent_async with its id."


def send_message_to_agent_async(context: ToolContext, message: str, other_agent_id: str) -> str:
    """Send the other agent a message and go on at once."""
    other = _agent(context, other_agent_id)
    _send(context, other, message, is_waiting=False)
    return f"The message was sent to {other.name}. If it answers, that comes as a message to you."


def send_message_to_agent_and_wait_for_reply(
    context: ToolContext, message: str, other_agent_id: str
) -> str:
    """Send the other agent a message and return what it answers."""
    other = _agent(context, other_agent_id)
    run = _send(context, other, message, is_waiting=True)
    return json.dumps(_replies(context, [run])[0], ensure_ascii=False)


def send_message_to_agents_matching_tags(
    context: ToolContext,
    message: str,
    match_all: list[str] | None = None,
    match_some: list[str] | None = None,
) -> str:
    """Send a message to every agent that has all of some tags and any of others; returns their answers."""
    others = _matching(context, match_all or [], match_some or [])
    runs, failed = [], []
    for other in others:
        try:
            runs.append(_send(context, other, message, is_waiting=True))
        except ToolError as exc:
            failed.append({"agent_id": ids.make(ids.AGENT, other.pk), "error": str(exc)})
    return json.dumps([*_replies(context, runs), *failed], ensure_ascii=False)


def _actor(context: ToolContext) -> Actor:
    return Actor(context.agent.owner, KEYLESS_SCOPES)


def _agent(context: ToolContext, text_: str) -> Agent:
    try:
        found = agents_of(_actor(context)).filter(pk=ids.parse(ids.AGENT, text_)).first()
    except ids.MalformedId:
        found = None
    if found is None:
        raise ToolError(f"There is no agent {text_[:80]!r}. Its id looks like agent-<uuid>.")
    return found


def _matching(context: ToolContext, every: list[str], some: list[str]) -> list[Agent]:
    if not every and not some:
        raise ToolError("Name tags in match_all or match_some.")
    others = agents_of(_actor(context)).exclude(pk=context.agent.pk).exclude(hidden=True)
    if every:
        wanted = set(every)
        count = Count("tag_rows", filter=Q(tag_rows__tag__in=wanted), distinct=True)
        others = others.annotate(having=count).filter(having=len(wanted))
    if some:
        having = agents_of(_actor(context)).filter(tag_rows__tag__in=some)
        others = others.filter(pk__in=having.values("pk"))
    found = list(others.order_by("created_at", "pk")[: MAX_RECIPIENTS + 1])
    if not found:
        raise ToolError("No agent has these tags.")
    if len(found) > MAX_RECIPIENTS:
        raise ToolError(
            f"More than {MAX_RECIPIENTS} agents have these tags; nothing was sent. Name tags that fewer have."
        )
    return found


def _chain(context: ToolContext) -> list[str]:
    """Return the ids of the agents through which this call came about, its own last."""
    run = Run.objects.filter(pk=context.run_id).first() if context.run_id else None
    before = run.request.get(CHAIN, []) if run is not None else []
    return [*before, str(context.agent.pk)]


def _send(context: ToolContext, other: Agent, message: str, *, is_waiting: bool) -> Run:
    """Accept a turn of the other agent. Raises ToolError for loops and for what `accept_turn` refuses."""
    if not message.strip():
        raise ToolError("The message is empty; nothing was sent.")
    if len(message) > MAX_MESSAGE_CHARS:
        raise ToolError(f"The message is longer than {MAX_MESSAGE_CHARS} characters.")
    chain = _chain(context)
    if other.pk == context.agent.pk:
        raise ToolError("That is your own id; nothing was sent.")
    if is_waiting and str(other.pk) in chain:
        raise ToolError(
            f"{other.name} waits for you already, directly or through others, so it cannot answer; nothing was sent. "
            "Answer with what you know."
        )
    if len(chain) > MAX_CHAIN:
        raise ToolError(
            f"This went through {len(chain)} agents already, and more than {MAX_CHAIN} are not allowed; nothing was "
            "sent. Answer with what you know."
        )
    told = FROM_AGENT.render(
        sender_name=context.agent.name,
        sender_id=f"agent-{context.agent.pk}",
        how_to_answer=IT_WAITS if is_waiting else NO_WAITING,
        message=message,
    )
    incoming = IncomingMessage(
        "user", told, otid=str(uuid.uuid4()), sender_id=f"agent-{context.agent.pk}"
    )
    options = TurnOptions(
        run_type="send_message", background=True, when_busy="queue", extra={CHAIN: chain}
    )
    actor = _actor(context)
    try:
        conversation = default_conversation(actor, other)
        return accept_turn(actor, conversation, [incoming], options).run
    except SouveraineError as exc:
        raise ToolError(f"{other.name} cannot take the message: {exc.message}") from None


def _replies(context: ToolContext, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Wait for the runs to end; returns each agent's answer, or why there is none."""
    limit = settings.CONFIG["SOUVERAINE_TOOL_TIMEOUT_SECONDS"] * (1 - MARGIN_SHARE)
    deadline, pause = time.monotonic() + limit, FIRST_LOOK_SECONDS
    waiting = {run.pk for run in runs}
    while waiting and time.monotonic() < deadline:
        live = Run.objects.filter(pk__in=waiting, status__in=UNENDED)
        waiting = set(live.values_list("pk", flat=True))
        if waiting and _is_over(context):
            cancel_runs(Run.objects.filter(pk__in=waiting))
            break
        if waiting:
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        pause = min(pause * 1.5, LAST_LOOK_SECONDS)
    ended = {run.pk: run for run in Run.objects.filter(pk__in=[run.pk for run in runs])}
    return [_reply(ended.get(run.pk, run), limit) for run in runs]


def _is_over(context: ToolContext) -> bool:
    """Tell whether the turn that waits was cancelled: then nobody wants the answers."""
    if context.run_id is None:
        return False
    return not Run.objects.filter(
        pk=context.run_id, status=RunStatus.RUNNING, cancel_requested_at__isnull=True
    ).exists()


def _reply(run: Run, limit_seconds: float) -> dict[str, Any]:
    said = [message.text for message in run_messages(run) if message.role == "assistant"]
    reply: dict[str, Any] = {"agent_id": ids.make(ids.AGENT, run.agent_id)}
    if run.status in UNENDED:
        reply["error"] = (
            f"It has not answered within {limit_seconds:.0f} seconds; it goes on by itself."
        )
    elif run.stop_reason == "requires_approval":
        reply["error"] = "It waits for a person to allow a tool call."
    elif run.status != RunStatus.COMPLETED:
        reply["error"] = f"Its turn ended with {run.stop_reason or run.status}."
    return {**reply, "response": [words for words in said if words]}


_MESSAGE = text("The message. The other agent knows nothing of this conversation.")
_OTHER = text("Id of the other agent, agent-<uuid>.")
_TAGS = {"type": "array", "items": {"type": "string"}}
MULTI_AGENT_TOOLS = (
    BuiltinTool(
        name="send_message_to_agent_async",
        description="Send another agent a message without waiting for an answer.",
        parameters=schema(("message", "other_agent_id"), message=_MESSAGE, other_agent_id=_OTHER),
        run=send_message_to_agent_async,
        tool_type=MULTI_AGENT,
    ),
    BuiltinTool(
        name="send_message_to_agent_and_wait_for_reply",
        description="Send another agent a message and wait for its answer, which is returned.",
        parameters=schema(("message", "other_agent_id"), message=_MESSAGE, other_agent_id=_OTHER),
        run=send_message_to_agent_and_wait_for_reply,
        tool_type=MULTI_AGENT,
    ),
    BuiltinTool(
        name="send_message_to_agents_matching_tags",
        description="Send a message to all agents with certain tags and wait for their answers.",
        parameters=schema(
            ("message",),
            message=_MESSAGE,
            match_all={**_TAGS, "description": "Tags that an agent must have, all of them."},
            match_some={**_TAGS, "description": "Tags of which an agent must have at least one."},
        ),
        run=send_message_to_agents_matching_tags,
        tool_type=MULTI_AGENT,
    ),
)
