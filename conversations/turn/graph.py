"""The graph of a turn: exactly two nodes, `agent ⇄ tools`, on thread id = conversation id (architecture §5.3).

State holds counters and last ids, never message bodies: 100 turns cost 0.27 MB this way. Which node comes
next is derived from the rows, so a lost or deleted checkpoint changes nothing (`derive_state`).
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from conversations.models import Message, Step
from conversations.services.approvals import ANSWERS, is_waiting
from conversations.services.prompt import SYSTEM_SEQUENCE
from conversations.services.usage import SUMMARY_TAG
from conversations.turn.context import TurnContext
from conversations.turn.database import run_db
from conversations.turn.guide import has_ended, read_guide
from conversations.turn.model_call import call_model
from conversations.turn.tool_calls import pending_message, run_tool_calls
from souveraine import ids

Next = Literal["agent", "tools", "end"]


class TurnState(TypedDict):
    """Counters and last ids. `steps` counts the model calls of this run."""

    last_sequence: int
    last_message_id: str | None
    message_count: int
    steps: int
    pending: Next
    stop_reason: str


def derive_state(context: TurnContext) -> TurnState:
    """Return where the turn stands, from the rows alone."""
    run = context.run
    newest = (
        Message.objects.filter(conversation_id=run.conversation_id)
        .only("id", "sequence", "role", "otid")
        .order_by("-sequence")
        .first()
    )
    is_new = newest is None or newest.is_said
    if is_new and ANSWERS not in run.request:
        return _state(newest, 0, "agent")
    tags = Step.objects.filter(run=run, status="success").values_list("tags", flat=True)
    steps = sum(SUMMARY_TAG not in step for step in tags)
    pending = pending_message(run)
    if pending is not None:
        if is_waiting(pending.id):
            return {**_state(newest, steps, "end"), "stop_reason": "requires_approval"}
        return _state(newest, steps, "tools")
    if newest is None:
        return _state(newest, steps, "agent")
    is_answer = newest.role == Message.Role.ASSISTANT and not newest.is_said
    rules = context.rules if newest.role == Message.Role.TOOL else None
    if rules is not None and has_ended(run, rules, context.tool_names):
        return {**_state(newest, steps, "end"), "stop_reason": "tool_rule"}
    is_answered = is_answer and newest.sequence >= run.first_sequence
    return _state(newest, steps, "end" if is_answered else "agent")


def _state(newest: Message | None, steps: int, pending: Next) -> TurnState:
    sequence = newest.sequence if newest else SYSTEM_SEQUENCE
    return {
        "last_sequence": sequence,
        "last_message_id": ids.make(ids.MESSAGE, newest.id) if newest else None,
        "message_count": sequence - SYSTEM_SEQUENCE,
        "steps": steps,
        "pending": pending,
        "stop_reason": "end_turn",
    }


async def agent_node(state: TurnState, runtime: Runtime[TurnContext]) -> dict[str, Any]:
    """Ask the model. An answer that an earlier attempt has stored was found by `derive_state`."""
    context = runtime.context
    if context.rules is not None:
        context.guide = await run_db(read_guide, context.run, context.rules, context.tool_names)
    context.is_last_step = state["steps"] + 1 >= context.max_steps
    message = await call_model(context)
    is_hinted = context.is_hinted
    waits = any(call.get("gate") for call in message.tool_calls)
    pending: Next = "tools" if message.tool_calls and not waits else "end"
    sequence = message.sequence + is_hinted
    return {
        "last_sequence": sequence,
        "last_message_id": ids.make(ids.MESSAGE, message.id),
        "message_count": sequence - SYSTEM_SEQUENCE,
        "steps": state["steps"] + 1,
        "pending": "agent" if is_hinted else pending,
        "stop_reason": "requires_approval" if waits else "end_turn",
    }


async def tools_node(state: TurnState, runtime: Runtime[TurnContext]) -> dict[str, Any]:
    """Run the open calls of the newest assistant message."""
    context = runtime.context
    message = await run_db(pending_message, context.run)
    if message is not None:
        await run_tool_calls(context, message)
    after = await run_db(derive_state, context)
    if after["stop_reason"] == "tool_rule":
        return {**after, "steps": state["steps"]}
    is_exhausted = state["steps"] >= context.max_steps
    return {
        **after,
        "steps": state["steps"],
        "pending": "end" if is_exhausted else "agent",
        "stop_reason": "max_steps" if is_exhausted else "end_turn",
    }


def _route(state: TurnState) -> str:
    return END if state["pending"] == "end" else state["pending"]


def build_graph(
    checkpointer: BaseCheckpointSaver[str],
) -> CompiledStateGraph[TurnState, TurnContext, TurnState, TurnState]:
    """Compile the graph; once per process."""
    graph = StateGraph(TurnState, context_schema=TurnContext)
    graph.add_node("agent", agent_node)
    graph.add_node("tools", tools_node)
    for source in (START, "agent", "tools"):
        graph.add_conditional_edges(source, _route, ["agent", "tools", END])
    return graph.compile(checkpointer=checkpointer)
