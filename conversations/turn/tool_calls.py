"""Tool calls of one assistant message, each journalled before and after (architecture §5.5).

Called by the graph's `tools` node, again after a crash: what has returned is not run again; what had
started is run again only when the tool says it is idempotent, else its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connections
from django.utils import timezone

from agents.models import Tool
from agents.tools import registry
from agents.tools.arguments import check_arguments
from agents.tools.base import ToolContext, ToolError
from conversations.models import Conversation, Message, Run, ToolCall
from conversations.services.approvals import ANSWERS, denial_text
from conversations.services.runs import fenced, fenced_conversation, note_progress
from conversations.turn.context import TurnContext
from conversations.turn.database import run_db
from conversations.turn.guide import CONSTRAINT, read_guide
from souveraine.errors import SouveraineError
from souveraine.events.log import Fenced
from souveraine.lib.crash_points import reached
from souveraine.lib.text import clean_json, clean_text

logger = logging.getLogger(__name__)
UNKNOWN_OUTCOME = (
    "The server stopped while this tool ran, so its outcome is unknown. It was not run again. Check whether it took "
    "effect before you call it once more."
)
BESIDE_THE_CALLS = (
    Message.Role.TOOL,
    Message.Role.SYSTEM,
    Message.Role.APPROVAL,
    Message.Role.SUMMARY,
)
CANCELLED = "The call was cancelled before it returned."
HEAD_SHARE = 0.7
CLIENT_RETURN_CHARS = 50_000  # as a tool's return_char_limit when nothing is said
TOOL_THREADS = 32
_executor = ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tool")


@dataclass(frozen=True)
class Outcome:
    """What a call gave: text for the model, `success` or `error`; of a client's tool also its streams."""

    text: str
    status: str
    content: list[dict[str, Any]] | None = None
    stdout: list[str] | None = None
    stderr: list[str] | None = None
    is_clients: bool = False


def outcome_of(decision: dict[str, Any]) -> Outcome:
    """Return the outcome that a denial or a client's return is."""
    if decision["type"] == "deny":
        reason = cap_text(decision.get("reason") or "", CLIENT_RETURN_CHARS)
        return Outcome(denial_text(reason), "error")
    return Outcome(
        cap_text(clean_text(decision["text"]), CLIENT_RETURN_CHARS),
        decision["status"],
        decision.get("content"),
        decision.get("stdout"),
        decision.get("stderr"),
        is_clients=True,
    )


def cap_text(text: str, limit_chars: int) -> str:
    """Cut a long tool return to head and tail, saying how much was left out."""
    if len(text) <= limit_chars:
        return text
    head = int(limit_chars * HEAD_SHARE)
    tail = max(limit_chars - head - 60, 1)
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def parse_arguments(tool: Tool, arguments: str) -> dict[str, Any]:
    """Parse and check the arguments against the tool's schema. Raises ToolError for the model."""
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as exc:
        raise ToolError(
            f"The arguments are not valid JSON ({exc}). Call {tool.name} again with a JSON object."
        ) from None
    return check_arguments(tool, clean_json(parsed))


def _start(
    context: TurnContext, message: Message, position: int, name: str, *, may_rerun: bool
) -> tuple[str, dict[str, Any]]:
    """Journal the start. Returns what to do now, and the decision of a call that waited for a client.

    "run", "returned" (nothing), "unknown" (a crash hides the outcome) or "decided" (the decision is the outcome).
    """
    with fenced(context.run):
        entry, created = ToolCall.objects.get_or_create(
            conversation_id=context.run.conversation_id,
            message_id=message.id,
            position=position,
            defaults={"run": context.run, "name": name, "state": ToolCall.State.STARTED},
        )
        decision = entry.decision or {}
        if entry.state == ToolCall.State.DECIDED:
            if decision["type"] != "approve":
                return "decided", decision
            entry.state, entry.started_at, created = ToolCall.State.STARTED, timezone.now(), True
            entry.save(update_fields=["state", "started_at"])
    if entry.state == ToolCall.State.RETURNED:
        return "returned", decision
    return "run" if created or may_rerun else "unknown", decision


def _finish(run: Run, message: Message, position: int, outcome: Outcome) -> Message | None:
    """Journal the return and store the tool message in one transaction.

    The first outcome stays: None when there is one (a cancel may meet the thread that stores it).
    """
    call = message.tool_calls[position]
    with fenced_conversation(run) as conversation:
        if ToolCall.objects.filter(
            message_id=message.id, position=position, state=ToolCall.State.RETURNED
        ).exists():
            return None
        ToolCall.objects.update_or_create(
            conversation=conversation,
            message_id=message.id,
            position=position,
            defaults={
                "run": run,
                "name": call["name"],
                "state": ToolCall.State.RETURNED,
                "status": outcome.status,
                "returned_at": timezone.now(),
            },
        )
        conversation.last_sequence += 1
        row = Message.objects.create(
            conversation=conversation,
            agent_id=run.agent_id,
            sequence=conversation.last_sequence,
            role=Message.Role.TOOL,
            text=outcome.text,
            content=outcome.content,
            tool_call_id=call["id"],
            name=None if outcome.is_clients else call["name"],
            status=outcome.status,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            run=run,
            step_id=message.step_id,
        )
        conversation.save(update_fields=["last_sequence"])
        note_progress(run)
        reached("in_store_return")
    return row


def pending_message(run: Run) -> Message | None:
    """Return the assistant message whose calls the run has to answer: the newest one, or the one decided on.

    What was said after an unanswered call closes it, unless the run brings the decision about it.
    """
    newest = (
        Message.objects.filter(conversation_id=run.conversation_id)
        .exclude(role__in=BESIDE_THE_CALLS)
        .order_by("-sequence")
        .first()
    )
    if newest is None or newest.is_said:
        decided_on = run.request.get(ANSWERS)
        newest = Message.objects.filter(id=decided_on).first() if decided_on else None
    if newest is None or not newest.tool_calls:
        return None
    answered = ToolCall.objects.filter(message_id=newest.id, state=ToolCall.State.RETURNED).count()
    return newest if answered < len(newest.tool_calls) else None


async def run_tool_calls(context: TurnContext, message: Message) -> None:
    """Run the calls of a message in order and stream each return. Raises Fenced when taken over."""
    refusals: dict[int, str] = {}
    if context.rules is not None:
        guide = await run_db(
            read_guide, context.run, context.rules, context.tool_names, message.sequence
        )
        refusals = guide.refusals(message)
    for position in range(len(message.tool_calls)):
        row = await _run_one(context, message, position, refusals.get(position))
        if row is not None:
            await context.emitter.message(row)
            reached("between_tools")


async def _run_one(
    context: TurnContext, message: Message, position: int, refusal: str | None
) -> Message | None:
    call = message.tool_calls[position]
    tool = next((t for t in context.tools if t.name == call["name"]), None)
    builtin = registry.find(call["name"]) if tool is not None and tool.owner_id is None else None
    may_rerun = builtin.idempotent if builtin else False
    reached("before_tool")
    state, decision = await run_db(
        _start, context, message, position, call["name"], may_rerun=may_rerun
    )
    if state == "returned":
        return None
    reached("after_tool_started")
    if state == "decided":
        outcome = outcome_of(decision)
    elif state == "unknown":
        outcome = Outcome(UNKNOWN_OUTCOME, "error")
    elif not decision and refusal is not None:
        outcome = Outcome(refusal, "error")
    elif not decision and call["name"] in context.gates.denied:
        outcome = outcome_of({"type": "deny", "reason": context.gates.denied[call["name"]]})
    else:
        outcome = await _execute(context, tool, call)
    reached("after_tool_ran")
    row = await run_db(_finish, context.run, message, position, outcome)
    reached("after_tool_returned")
    return row


async def _execute(context: TurnContext, tool: Tool | None, call: dict[str, str]) -> Outcome:
    if tool is None:
        valid = [t.name for t in context.tools]
        return Outcome(CONSTRAINT.format(name=call["name"], valid=valid), "error")
    try:
        arguments = parse_arguments(tool, call["arguments"])
        text = await _in_thread(context, tool, arguments)
        return Outcome(cap_text(clean_text(text), tool.return_char_limit), "success")
    except ToolError as exc:
        return Outcome(cap_text(clean_text(str(exc)), tool.return_char_limit), "error")
    except SouveraineError as exc:
        return Outcome(exc.message, "error")
    except TimeoutError:
        limit = settings.CONFIG["SOUVERAINE_TOOL_TIMEOUT_SECONDS"]
        return Outcome(
            f"{tool.name} did not return within {limit:g} seconds. Its outcome is unknown.", "error"
        )
    except Fenced:
        raise
    except (
        Exception
    ):  # the tool runner is one of the named edges: a broken tool must not end the turn
        logger.exception("event=tool_crashed run_id=run-%s tool=%s", context.run.pk, tool.name)
        return Outcome(
            f"{tool.name} failed inside the server; the operator's log has the details.", "error"
        )


async def _in_thread(context: TurnContext, tool: Tool, arguments: dict[str, Any]) -> str:
    builtin = registry.find(tool.name) if tool.owner_id is None else None
    if builtin is None:
        raise ToolError(
            f"{tool.name} is custom code, which this server cannot run: it needs the tool sandbox."
        )
    run = context.run
    tool_context = ToolContext(run.agent, run.conversation_id, run.pk, context.isolated)

    def call() -> str:
        try:
            return builtin.run(tool_context, **arguments)
        finally:
            connections.close_all()

    async with context.tool_slots:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(settings.CONFIG["SOUVERAINE_TOOL_TIMEOUT_SECONDS"]):
            return await loop.run_in_executor(_executor, call)


def close_open_calls(run: Run) -> None:
    """Answer every open call of a cancelled turn, so that the history stays valid. Raises Fenced."""
    message = pending_message(run)
    if message is None:
        return
    for position in range(len(message.tool_calls)):
        _finish(run, message, position, Outcome(CANCELLED, "error"))
    Conversation.objects.filter(pk=run.conversation_id, pending_message_id=message.id).update(
        pending_message_id=None
    )
