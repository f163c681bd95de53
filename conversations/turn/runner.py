"""One claimed run from start to its last event. Every way out of here ends in a terminal state, or in a release.

Called by the worker; uses the graph for the middle, `services.runs` for every transition.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import replace
from typing import Any

from django.conf import settings
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from redis.exceptions import RedisError

from agents.models import Agent, RememberedDecision
from agents.providers import registry
from agents.providers.capabilities import fit
from agents.selectors import attached_tools
from agents.services.approvals import names_requiring_approval
from agents.services.memory import take_up_edits
from conversations.models import Conversation, Run
from conversations.services import mirror, runs
from conversations.services.closing import LOST_EVENTS
from conversations.services.tokens import Calibration
from conversations.services.usage import load_usage
from conversations.turn.checkpointer import RUN_KEY
from conversations.turn.compaction import compact_run
from conversations.turn.context import Gates, TurnContext
from conversations.turn.database import run_db
from conversations.turn.emitter import Emitter
from conversations.turn.graph import TurnState, derive_state
from conversations.turn.images import take_in_images
from conversations.turn.model_call import store_partial
from conversations.turn.notices import add_notices
from conversations.turn.reconcile import fill_gap, reconcile_stream
from conversations.turn.tool_calls import close_open_calls
from conversations.turn.tool_rules import ToolRules
from conversations.wire import frames
from souveraine.errors import ProviderError, SouveraineError
from souveraine.events.log import Fenced, last_seq_async
from souveraine.events.writer import EventWriter
from souveraine.lib.crash_points import reached

logger = logging.getLogger(__name__)
GRAPH_STEPS_PER_MODEL_CALL = 2
CLOSE_TIMEOUT_SECONDS = 10.0
RECONCILE_TIMEOUT_SECONDS = 2.0  # after a cancel; an absent Redis must not hold up its end


class Released(Exception):
    """The worker gives the run back: it shuts down, or cannot renew its lease."""


class TurnRunner:
    """Executes one claimed run."""

    def __init__(
        self, run: Run, graph: CompiledStateGraph[Any, Any, Any, Any], tool_slots: asyncio.Semaphore
    ) -> None:
        self.run, self._graph, self._tool_slots = run, graph, tool_slots
        self.is_cancelled = False
        self._interruptible: asyncio.Task[Any] | None = None
        self._context: TurnContext | None = None
        self._has_begun = False

    def cancel(self) -> None:
        """Interrupt the turn; for the loop's thread, safe to call twice.

        Before the turn begins and once it is ending nothing is interrupted: those look at `is_cancelled`
        or at the row. Without this a cancel could hit the last events, or a task that has not begun.
        """
        if not self.is_cancelled:
            self.is_cancelled = True
            if self._interruptible is not None:
                self._interruptible.cancel()

    async def execute(self) -> None:
        """Run the turn. Raises Fenced when another worker took it over, Released when it was given back."""
        min_seq, self._has_begun = await _begun(self.run)
        writer = EventWriter(self.run.pk, self.run.fence, min_seq=min_seq)
        emitter = Emitter(self.run, writer)
        try:
            stop_reason, error = await self._attempt(emitter)
            await self._end(emitter, stop_reason, error)
        finally:
            try:
                await writer.aclose(timeout_seconds=CLOSE_TIMEOUT_SECONDS)
            except (Fenced, SouveraineError, TimeoutError) as exc:
                logger.warning("event=stream_incomplete run_id=run-%s error=%r", self.run.pk, exc)

    async def _attempt(self, emitter: Emitter) -> tuple[str, dict[str, Any] | None]:
        if self.is_cancelled:
            return await self._after_cancel(emitter)
        self._interruptible = asyncio.current_task()
        try:
            if self._has_begun:
                await reconcile_stream(self.run, emitter)
            async with asyncio.timeout(settings.CONFIG["SOUVERAINE_TURN_TIMEOUT_SECONDS"]):
                context, state = await run_db(self._prepare, emitter)
                self._context = context
                reached("after_prepare")
                await take_in_images(self.run)
                return await self._invoke(context, state), None
        except asyncio.CancelledError:
            if not self.is_cancelled:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()  # the cancel was ours: what follows must run to its end
            return await self._after_cancel(emitter)
        except ProviderError as exc:
            return exc.stop_reason, {
                "error_type": exc.error_type,
                "message": exc.message,
                "detail": exc.provider_detail,
            }
        except SouveraineError as exc:
            return "error", {
                "error_type": "internal_error",
                "message": exc.message,
                "detail": exc.detail,
            }
        except TimeoutError:
            limit = settings.CONFIG["SOUVERAINE_TURN_TIMEOUT_SECONDS"]
            return "error", {
                "error_type": "internal_error",
                "message": "The turn took too long.",
                "detail": f"The turn was ended after {limit:g} seconds (SOUVERAINE_TURN_TIMEOUT_SECONDS).",
            }
        except (Fenced, Released):
            raise
        except Exception:  # the task wrapper is one of the named edges: record it and end the run
            logger.exception("event=turn_crashed run_id=run-%s", self.run.pk)
            return "error", {
                "error_type": "internal_error",
                "message": "An error occurred during agent execution.",
                "detail": "The server failed while it ran this turn. Your message is kept; the operator's log has "
                f"the details under run-{self.run.pk}.",
            }
        finally:
            self._interruptible = None

    def _prepare(self, emitter: Emitter) -> tuple[TurnContext, TurnState]:
        """Return what the graph needs, and where it begins.

        Rows are the truth: the state is derived from them, for a new turn as for one taken over.
        """
        run = self.run
        conversation: Conversation = run.conversation
        agent: Agent = run.agent
        take_up_edits(agent)
        handle = run.request.get("override_model") or conversation.model or agent.model
        registry.refresh_stored_for(handle)
        provider, name = registry.resolve(handle, agent.owner_id)
        tools = attached_tools(agent)
        gates = _gates(run, agent)
        fitted = fit(
            registry.known_model(handle, agent.owner_id),
            handle=handle,
            context_window=conversation.context_window or agent.context_window,
            has_tools=bool(tools) or bool(gates.client_tools),
            is_agents_own=handle == agent.model or conversation.context_window is not None,
        )
        add_notices(run, fitted.notices)
        context = TurnContext(
            run=run,
            emitter=emitter,
            provider=provider,
            provider_model=name,
            model_handle=handle,
            context_window=fitted.context_window,
            tools=tools if fitted.uses_tools else [],
            gates=gates if fitted.uses_tools else replace(gates, client_tools=()),
            rules=ToolRules.of(agent.tool_rules) if fitted.uses_tools else None,
            tool_slots=self._tool_slots,
            calibration=Calibration.load(conversation.calibration, handle),
            settings={
                k: v for k, v in (conversation.model_settings or {}).items() if v is not None
            },
            isolated=conversation.isolated_blocks,
            claimed=conversation,
        )
        return context, derive_state(context)

    async def _invoke(self, context: TurnContext, state: TurnState) -> str:
        run = self.run
        if run.request.get("run_type") == runs.COMPACTION:
            return await compact_run(context)
        config: RunnableConfig = {
            "configurable": {"thread_id": str(run.conversation_id), RUN_KEY: run},
            "recursion_limit": context.max_steps * GRAPH_STEPS_PER_MODEL_CALL + 2,
        }
        result = await self._graph.ainvoke(state, config, context=context, durability="exit")
        return str(result["stop_reason"])

    async def _after_cancel(self, emitter: Emitter) -> tuple[str, dict[str, Any] | None]:
        """Keep what was streamed, answer open calls. Shielded by the caller's uncancel.

        The interrupted part may have stored something in its thread after all, so what is still to be
        streamed is found by comparing the stream with the rows.
        """
        if self._context is not None:
            await run_db(store_partial, self._context)
        await run_db(close_open_calls, self.run)
        try:
            async with asyncio.timeout(RECONCILE_TIMEOUT_SECONDS):
                await emitter.writer.flush()
                await reconcile_stream(self.run, emitter)
        except (TimeoutError, RedisError, SouveraineError) as exc:
            logger.warning("event=cancel_not_streamed run_id=run-%s error=%r", self.run.pk, exc)
        return "cancelled", None

    async def _end(self, emitter: Emitter, stop_reason: str, error: dict[str, Any] | None) -> None:
        run = self.run
        try:
            usage = await run_db(_finish, run, stop_reason, error)
        except runs.CancelRequested:
            stop_reason, error = await self._after_cancel(emitter)
            usage = await run_db(_finish, run, stop_reason, error)
        if usage is None:
            return
        reached("after_finish")
        await fill_gap(run, emitter)
        await write_terminal_events(emitter.writer, run.pk, stop_reason, usage, error)
        reached("after_last_event")
        await run_db(_after_end, run, emitter.writer.last_seq)
        reached("after_close")
        logger.info(
            "event=run_finished run_id=run-%s agent_id=agent-%s stop_reason=%s steps=%s",
            run.pk,
            run.agent_id,
            stop_reason,
            usage["step_count"],
        )


def _gates(run: Run, agent: Agent) -> Gates:
    """Return which calls of the turn wait for a client."""
    approval = names_requiring_approval(agent)
    known = (
        RememberedDecision.objects.filter(agent=agent, tool_name__in=approval) if approval else ()
    )
    return Gates(
        client_tools=tuple(run.request.get("client_tools") or ()),
        approval=frozenset(approval - {decision.tool_name for decision in known}),
        denied={d.tool_name: d.reason for d in known if not d.approve},
    )


async def _begun(run: Run) -> tuple[int, bool]:
    """Return a number that no event of the run can have reached, and whether an earlier claim has streamed.

    The stream is asked also at the first claim: after a power cut the database may have forgotten one.
    """
    try:
        last_seq = await last_seq_async(run.pk)
    except RedisError:
        last_seq = 0
    if run.fence == 1:
        return run.last_event_seq, last_seq > run.last_event_seq
    return run.last_event_seq + (0 if last_seq else LOST_EVENTS), True


def _finish(run: Run, stop_reason: str, error: dict[str, Any] | None) -> dict[str, Any] | None:
    """End the run and return its usage; None when it had ended already. Raises as `runs.finish` does."""
    usage = load_usage(run)
    reached("before_finish")
    ended = runs.finish(run, stop_reason=stop_reason, usage=usage, error=error)
    return usage if ended else None


def _after_end(run: Run, last_seq: int) -> None:
    runs.close_stream(run.pk, last_seq)
    conversation = Conversation.objects.get(pk=run.conversation_id)
    try:
        mirror.append_messages(conversation)
        mirror.write_metadata(conversation)
    except OSError as exc:  # the mirror is a copy; the next turn completes it
        logger.warning("event=mirror_failed conversation_id=conv-%s error=%r", conversation.pk, exc)


async def write_terminal_events(
    writer: EventWriter,
    run_id: uuid.UUID,
    stop_reason: str,
    usage: dict[str, Any],
    error: dict[str, Any] | None,
) -> None:
    """Write the terminal events and wait until the log has them."""
    for kind, data in frames.terminal_entries(run_id, stop_reason, usage, error):
        await writer.emit(kind, data)
    await writer.flush()
