"""One model call: stream the answer, store it with its step in one fenced transaction.

Called by the graph's `agent` node; what an earlier worker has stored is not asked for again.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from agents.providers import registry
from agents.providers.base import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from agents.providers.capabilities import fit
from agents.providers.retry import Attempts, RetryPolicy
from conversations.models import Conversation, Message, Run, Step
from conversations.services.approvals import open_calls
from conversations.services.runs import fenced, fenced_conversation, note_progress
from conversations.services.tokens import Calibration
from conversations.turn.compaction import fitted_request, learn_from_refusal
from conversations.turn.context import PartialAnswer, TurnContext
from conversations.turn.database import run_db
from conversations.turn.emitter import StepStream
from conversations.turn.notices import add_notices
from conversations.turn.think_tags import Piece, ThinkTagSplitter
from souveraine.errors import ProviderError
from souveraine.events.log import Fenced
from souveraine.lib.crash_points import reached
from souveraine.lib.text import TextJoiner, clean_text

logger = logging.getLogger(__name__)
MAX_NAME_CHARS = 255  # of a tool's name and a call's id, as the columns have
FIRST_RETRY_SECONDS = 0.5
FINISH_STOP_REASONS = {"length": "max_tokens_exceeded"}


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    joiner: TextJoiner = field(default_factory=TextJoiner)


@dataclass
class Answer:
    """What a model call gave."""

    text: str
    reasoning: str
    tool_calls: list[dict[str, str]]
    usage: UsageDelta | None
    finish_reason: str | None


class _Collector:
    """Streams deltas on and collects the answer; reasoning in think tags joins the other reasoning."""

    def __init__(self, context: TurnContext, stream: StepStream, partial: PartialAnswer) -> None:
        self._context, self._stream, self._partial = context, stream, partial
        self._calls: dict[int, _Call] = {}
        self._splitter = ThinkTagSplitter()
        self._joiner, self._reasoning_joiner = TextJoiner(), TextJoiner()
        self.usage: UsageDelta | None = None
        self.finish_reason: str | None = None
        self.has_output = False

    async def take(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            await self._pieces(self._splitter.feed(self._joiner.feed(delta.text)))
        elif isinstance(delta, ReasoningDelta):
            await self._pieces([("reasoning", self._reasoning_joiner.feed(delta.text))])
        elif isinstance(delta, ToolCallDelta):
            await self.flush()
            await self._tool_call(delta)
        elif isinstance(delta, UsageDelta):
            self.usage = delta
        elif isinstance(delta, FinishDelta):
            self.finish_reason = delta.reason

    async def flush(self) -> None:
        """Stream what was held back as the possible start of a tag."""
        await self._pieces(self._splitter.feed(self._joiner.end()))
        await self._pieces(self._splitter.end())

    async def _pieces(self, pieces: list[Piece]) -> None:
        for kind, text in pieces:
            if not text:
                continue
            if kind == "text":
                self._partial.text.append(text)
                await self._output(self._stream.text(text))
            else:
                self._partial.reasoning.append(text)
                await self._output(self._stream.reasoning(text))

    async def _output(self, emit: Any) -> None:
        if not self.has_output:
            self.has_output = True
            run = self._context.run
            if run.ttft_ns is None:
                run.ttft_ns = int((timezone.now() - run.created_at).total_seconds() * 1e9)
        await emit
        reached("after_delta")

    async def _tool_call(self, delta: ToolCallDelta) -> None:
        call = self._calls.setdefault(delta.index, _Call())
        is_new = not call.name and bool(delta.name)
        name = clean_text(delta.name or "")[:MAX_NAME_CHARS]
        arguments = call.joiner.feed(delta.arguments)
        call.id = call.id or clean_text(delta.id or "")[:MAX_NAME_CHARS]
        call.name = call.name or name
        if is_new and not call.id:
            call.id = f"call_{uuid.uuid4().hex[:24]}"  # some providers give none
        call.arguments.append(arguments)
        places = sorted(self._calls)
        gates = self._context.gates_of([self._calls[place].name for place in places])
        is_gated = bool(gates[places.index(delta.index)])
        await self._output(
            self._stream.tool_call(call.id, name if is_new else None, arguments, is_gated=is_gated)
        )

    def answer(self) -> Answer:
        calls = [
            {"id": c.id, "name": c.name, "arguments": "".join(c.arguments) or "{}"}
            for _, c in sorted(self._calls.items())
            if c.name
        ]
        text, reasoning = "".join(self._partial.text), "".join(self._partial.reasoning)
        return Answer(text, reasoning, _unique_ids(calls), self.usage, self.finish_reason)


def _unique_ids(calls: list[dict[str, str]]) -> list[dict[str, str]]:
    """Give a repeated call id a new one: returns are matched by it within a message."""
    seen: set[str] = set()
    for call in calls:
        if call["id"] in seen:
            call["id"] = f"call_{uuid.uuid4().hex[:24]}"
        seen.add(call["id"])
    return calls


async def call_model(context: TurnContext) -> Message:
    """Make the call, stream it, store it. Transient errors before any output are retried with back-off,
    then with the provider's fallbacks; one that answers stays for the rest of the turn. A prompt that the
    provider finds too large is made smaller (`turn.compaction`).

    Raises ProviderError when it fails for good, Fenced when the run was taken over.
    """
    default = RetryPolicy(settings.CONFIG["SOUVERAINE_MODEL_RETRIES"], FIRST_RETRY_SECONDS)
    attempts = Attempts.of(context.provider, context.provider_model, default)
    while True:
        request = await fitted_request(context)
        partial = PartialAnswer(uuid.uuid4(), uuid.uuid4())
        context.partial = partial
        collector = _Collector(
            context, context.emitter.step(partial.message_id, partial.step_id), partial
        )
        started = time.monotonic()
        reached("before_model_call")
        try:
            async with aclosing(context.provider.stream(request)) as deltas:
                async for delta in deltas:
                    await collector.take(delta)
            await collector.flush()
            answer = collector.answer()
            _refuse_empty(answer, context)
        except ProviderError as exc:
            if not collector.has_output and await learn_from_refusal(context, exc):
                continue
            wait_seconds = None if collector.has_output else attempts.after(exc)
            if wait_seconds is not None:
                await _before_retry(context, attempts.model, exc, wait_seconds)
                continue
            await run_db(_store_failed_step, context, partial, exc)
            raise
        reached("after_model_call")
        message = await run_db(_store, context, partial, answer, started)
        reached("after_store_answer")
        context.partial = None
        if not context.emitter.is_token_mode:
            await context.emitter.message(message)
        return message


async def _before_retry(
    context: TurnContext, model: str, error: ProviderError, wait_seconds: float
) -> None:
    logger.info(
        "event=model_retry run_id=run-%s model=%s error=%s wait_seconds=%.2f",
        context.run.pk,
        model,
        error.error_type,
        wait_seconds,
    )
    if model != context.provider_model:
        await run_db(_use_model, context, model)
    await asyncio.sleep(wait_seconds)


def _use_model(context: TurnContext, model: str) -> None:
    """Go on with another model of the same provider, within what it can."""
    chosen, context.provider_model = context.model_handle, model
    context.model_handle = handle = f"{context.provider.name}/{model}"
    fitted = fit(
        registry.known_model(handle, context.run.agent.owner_id),
        handle=handle,
        context_window=context.context_window,
        has_tools=bool(context.schemas),
    )
    context.context_window = fitted.context_window
    context.calibration = Calibration(handle)
    if not fitted.uses_tools:
        context.tools, context.gates = [], replace(context.gates, client_tools=())
    change = f"The model {chosen} was not available, so {handle} was asked."
    add_notices(context.run, [change, *fitted.notices])


def _refuse_empty(answer: Answer, context: TurnContext) -> None:
    if answer.text.strip() or answer.tool_calls:
        return
    raise ProviderError(
        "llm_empty_response",
        "INTERNAL_SERVER_ERROR: LLM provider returned empty content in response "
        f"(model: {context.provider_model}, finish_reason: {answer.finish_reason}). Send the message again, or "
        "choose another model.",
        stop_reason="invalid_llm_response",
        is_transient=not answer.reasoning,
    )


def _step(context: TurnContext, partial: PartialAnswer) -> Step:
    run = context.run
    return Step(
        pk=partial.step_id,
        run=run,
        agent_id=run.agent_id,
        index=Step.objects.filter(run=run).count(),
        provider_name=context.provider.name,
        model=context.provider_model,
        model_handle=context.model_handle,
        context_window=context.context_window,
    )


def _store(context: TurnContext, partial: PartialAnswer, answer: Answer, started: float) -> Message:
    """Store the answer and its step together: found again, the call is not repeated."""
    run, usage = context.run, answer.usage
    with fenced_conversation(run) as conversation:
        conversation.last_sequence += 1
        step = _step(context, partial)
        step.completed_at = timezone.now()
        step.created_at = step.completed_at - timedelta(seconds=time.monotonic() - started)
        step.stop_reason = FINISH_STOP_REASONS.get(answer.finish_reason or "", "end_turn")
        if usage is not None:
            step.prompt_tokens, step.completion_tokens = (
                usage.prompt_tokens,
                usage.completion_tokens,
            )
            step.cached_input_tokens, step.reasoning_tokens = (
                usage.cached_input_tokens,
                usage.reasoning_tokens,
            )
            context.calibration.counted(context.prompt_estimate, usage.prompt_tokens)
            conversation.calibration = context.calibration.dump()
        step.save(force_insert=True)
        gates = context.gates_of([call["name"] for call in answer.tool_calls])
        calls = [context.guide.completed(c) if context.guide else c for c in answer.tool_calls]
        message = Message.objects.create(
            id=partial.message_id,
            conversation=conversation,
            agent_id=run.agent_id,
            sequence=conversation.last_sequence,
            role=Message.Role.ASSISTANT,
            text=answer.text,
            reasoning=answer.reasoning,
            tool_calls=[
                {**call, "gate": gate} if gate else call
                for call, gate in zip(calls, gates, strict=True)
            ],
            model=context.model_handle,
            run=run,
            step_id=partial.step_id,
        )
        Message.objects.filter(run=run, role=Message.Role.USER, step_id__isnull=True).update(
            step_id=partial.step_id
        )
        if any(gates):
            open_calls(conversation, message, gates, run)
        context.is_hinted = not answer.tool_calls and _store_hint(context, conversation, message)
        conversation.save(update_fields=["last_sequence", "calibration", "pending_message_id"])
        note_progress(run)
        reached("in_store_answer")
    context.refusals = 0
    logger.info(
        "event=step_finished run_id=run-%s agent_id=agent-%s duration_ms=%d",
        run.pk,
        run.agent_id,
        (time.monotonic() - started) * 1000,
    )
    return message


def _store_hint(context: TurnContext, conversation: Conversation, answer: Message) -> bool:
    """Store what the rules still want, behind an answer that would end the turn: it goes on then."""
    hint = context.guide.hint() if context.guide and not context.is_last_step else None
    if hint is None:
        return False
    conversation.last_sequence += 1
    Message.objects.create(
        conversation=conversation,
        agent_id=context.run.agent_id,
        sequence=conversation.last_sequence,
        role=Message.Role.SYSTEM,
        text=hint,
        run=context.run,
        step_id=answer.step_id,
    )
    return True


def _store_failed_step(context: TurnContext, partial: PartialAnswer, error: ProviderError) -> None:
    try:
        with fenced(context.run):
            step = _step(context, partial)
            step.status, step.error_type, step.stop_reason = (
                "failed",
                error.error_type,
                error.stop_reason,
            )
            step.error_data = {"message": error.message, "detail": error.provider_detail}
            step.completed_at = timezone.now()
            step.save(force_insert=True)
    except Fenced:
        logger.info("event=step_fenced run_id=run-%s", context.run.pk)


def store_partial(context: TurnContext) -> None:
    """Keep what a cancelled call had streamed, marked as partial. Raises Fenced."""
    if context.partial is not None:
        keep_partial(context.run, context.partial, context.model_handle)


def keep_partial(run: Run, partial: PartialAnswer, model_handle: str | None) -> None:
    """Store an interrupted answer, unless there is nothing, or the whole one was stored after all.

    Raises Fenced.
    """
    if not (partial.text or partial.reasoning):
        return
    with fenced_conversation(run) as conversation:
        if Message.objects.filter(id=partial.message_id).exists():
            return
        conversation.last_sequence += 1
        Message.objects.create(
            id=partial.message_id,
            conversation=conversation,
            agent_id=run.agent_id,
            sequence=conversation.last_sequence,
            role=Message.Role.ASSISTANT,
            text="".join(partial.text),
            reasoning="".join(partial.reasoning),
            status="partial",
            model=model_handle,
            run=run,
            step_id=partial.step_id,
        )
        conversation.save(update_fields=["last_sequence"])
