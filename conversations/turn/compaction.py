"""Make room in the prompt: the oldest messages of the window give way to a summary (architecture §4, §5).

A model is asked for a summary at most once per turn; when it fails, and when more room is needed, the
summary is made without one. The rows stay. Also carries out runs of type `compaction` (`POST …/compact`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import aclosing
from dataclasses import dataclass, replace

from django.conf import settings as django_settings
from django.utils import timezone

from agents.providers import registry
from agents.providers.base import ChatMessage, ChatProvider, ChatRequest, TextDelta, UsageDelta
from conversations.models import Conversation, Message, Step
from conversations.services import summaries
from conversations.services.compaction_settings import CompactionSettings
from conversations.services.runs import fenced
from conversations.services.usage import SUMMARY_TAG
from conversations.services.window import (
    Compaction,
    begin_with_summary,
    choose_start,
    is_answered,
    summary_of,
)
from conversations.turn.context import TurnContext
from conversations.turn.database import run_db
from conversations.turn.history import compile_history
from conversations.turn.notices import add_notices
from conversations.turn.request import OVERFLOW, Draft, draft_prompt, request_of, seen_by_model
from conversations.turn.think_tags import Piece, ThinkTagSplitter
from conversations.wire import frames
from souveraine.errors import ProviderError, SouveraineError
from souveraine.lib.text import TextJoiner

logger = logging.getLogger(__name__)
MAX_REFUSALS = 2  # after the first a summary is made, after the second the oldest turns are dropped
FIT_SHARE = (
    0.7  # of the room is filled after a cut, so that cuts (and the loss of the cache) are rare
)
DROP_SHARE = 0.4  # when the provider has refused what should have fitted
WORDS_PER_CHAR = 0.15
THINKING_TOKENS = 1024  # a summariser may think before it writes
OUTPUT_SHARE = 0.25  # of the summarising model's window
FRAME_CHARS = 200  # of a summarising request beside prompt and transcript


@dataclass(frozen=True)
class _Cut:
    """What leaves the window and what stays; `limit_chars` is the summary's upper bound."""

    draft: Draft
    start: int
    limit_chars: int

    @property
    def leaving(self) -> list[Message]:
        return self.draft.window.rows[: self.start]

    @property
    def staying(self) -> list[Message]:
        return self.draft.window.rows[self.start :]

    @property
    def window_start(self) -> int:
        """The sequence at which the window is to begin."""
        rows = self.draft.window.rows
        if self.start < len(rows):
            return rows[self.start].sequence
        return rows[-1].sequence + 1

    @property
    def hides_request(self) -> bool:
        """The message that is being answered leaves the window."""
        is_in_view = any(row.role == Message.Role.USER for row in self.staying)
        return not is_in_view and not is_answered(self.draft.window.rows)


async def fitted_request(context: TurnContext) -> ChatRequest:
    """Return the request of the next model call, after making room for it when that is needed.

    Raises ProviderError when it cannot be made to fit, Fenced when the run was taken over.
    """
    draft = await run_db(draft_prompt, context)
    if not draft.fits:
        draft = await _make_room(context, draft)
    return request_of(draft)


async def learn_from_refusal(context: TurnContext, error: ProviderError) -> bool:
    """Take up that the provider found the prompt too large. Returns whether another try makes sense."""
    if error.error_type != OVERFLOW:
        return False
    context.refusals += 1
    if context.refusals > MAX_REFUSALS:
        return False
    context.calibration.refused(
        context.prompt_estimate, context.context_window, error.provider_detail
    )
    await run_db(_store_calibration, context)
    logger.info(
        "event=context_overflow run_id=run-%s refusals=%d ratio=%.2f limit=%s",
        context.run.pk,
        context.refusals,
        context.calibration.ratio,
        context.calibration.limit,
    )
    return True


def _store_calibration(context: TurnContext) -> None:
    with fenced(context.run):
        Conversation.objects.filter(pk=context.run.conversation_id).update(
            calibration=context.calibration.dump()
        )


async def _make_room(context: TurnContext, draft: Draft) -> Draft:
    """Shorten the window: once per turn with a model, then without."""
    trigger = "context_window_exceeded" if context.refusals else "post_step_context_check"
    if await run_db(summary_of, context.run) is None:
        settings = CompactionSettings.of(context.run.agent)
        cut = plan(draft, settings)
        if cut.start:
            await _compact(context, cut, trigger, settings)
            draft = await run_db(draft_prompt, context)
    if not draft.fits:
        cut = _plan_drop(draft, DROP_SHARE if context.refusals else FIT_SHARE)
        if cut.start:
            await _compact(context, cut, trigger, None)
            draft = await run_db(draft_prompt, context)
    return draft


def plan(draft: Draft, settings: CompactionSettings, *, is_asked_for: bool = False) -> _Cut:
    """Choose what leaves the window; `is_asked_for`: also when all of it fits."""
    limit_chars = settings.limit_chars(_window_chars(draft))
    costs = draft.row_costs
    room = draft.room - _tokens_of(draft, limit_chars)
    keep = min(int(draft.size * settings.keep_share), room) if settings.keeps_tail else 0
    if is_asked_for:
        keep = min(keep, int(sum(costs) * settings.keep_share))
    start = choose_start(
        draft.window.rows, costs, keep_tokens=keep, most_tokens=room, may_empty=is_asked_for
    )
    return _Cut(draft, start, limit_chars)


def _plan_drop(draft: Draft, share: float) -> _Cut:
    limit_chars = CompactionSettings.of(draft.context.run.agent).limit_chars(_window_chars(draft))
    room = draft.room - _tokens_of(draft, limit_chars)
    start = choose_start(
        draft.window.rows, draft.row_costs, keep_tokens=int(room * share), most_tokens=room
    )
    return _Cut(draft, start, limit_chars)


def _window_chars(draft: Draft) -> int:
    return draft.context.calibration.chars(draft.size)


def _tokens_of(draft: Draft, chars: int) -> int:
    return int(chars * draft.size / max(_window_chars(draft), 1))


async def compact_run(context: TurnContext) -> str:
    """Carry out a run of type `compaction`; found again after a crash it is not made twice.

    Without a summary afterwards there was nothing to leave out. Returns the stop reason.
    """
    if await run_db(summary_of, context.run) is None:
        draft = await run_db(draft_prompt, context)
        settings = CompactionSettings.of(
            context.run.agent, context.run.request.get("compaction_settings")
        )
        cut = plan(draft, settings, is_asked_for=True)
        if cut.start:
            await _compact(context, cut, "manual", settings)
    return "end_turn"


async def _compact(
    context: TurnContext, cut: _Cut, trigger: str, settings: CompactionSettings | None
) -> None:
    """Summarise what leaves and move the window's start; `settings` None: without a model."""
    draft = cut.draft
    event_id = uuid.uuid4()
    is_announced = bool(context.run.request.get("include_compaction_messages"))
    if is_announced:
        await context.emitter.frame(
            frames.compaction_event_frame(
                event_id, timezone.now(), context.run.pk, trigger, draft.tokens, draft.size
            )
        )
    text, step = "", None
    if settings is not None:
        text, step = await _ask(context, cut, settings)
    if not text:
        text = summaries.fallback_summary(draft.window.summary, cut.leaving, cut.limit_chars)
    if cut.hides_request:
        request = await run_db(_open_request, context)
        text = summaries.with_request(text, request, cut.limit_chars) if request else text
    compaction = _compaction(cut, event_id, trigger, text)
    message = await run_db(begin_with_summary, context.run, text, compaction, step)
    if is_announced:
        for frame in frames.frames_of(message):
            await context.emitter.frame(frame)
    logger.info(
        "event=compacted run_id=run-%s trigger=%s tokens_before=%d tokens_after=%d by_model=%s",
        context.run.pk,
        trigger,
        compaction.context_tokens_before,
        compaction.context_tokens_after,
        bool(step is not None and step.status == "success"),
    )


def _open_request(context: TurnContext) -> str:
    rows = Message.objects.filter(
        conversation_id=context.run.conversation_id, role=Message.Role.USER
    )
    newest = rows.order_by("-sequence").first()
    return newest.text if newest else ""


def _compaction(cut: _Cut, event_id: uuid.UUID, trigger: str, text: str) -> Compaction:
    draft = cut.draft
    after = (
        draft.context.calibration.tokens(draft.fixed_estimate)
        + _tokens_of(draft, len(text))
        + sum(draft.row_costs[cut.start :])
    )
    return Compaction(
        event_id=event_id,
        trigger=trigger,
        window_start=cut.window_start,
        context_window=draft.size,
        context_tokens_before=draft.tokens,
        context_tokens_after=after,
        messages_count_before=1 + len(draft.window.messages),
        messages_count_after=2 + len(cut.staying),
    )


async def _ask(
    context: TurnContext, cut: _Cut, settings: CompactionSettings
) -> tuple[str, Step | None]:
    """Ask a model for the summary. Returns it ("" when there is none of use) and the step of the call."""
    limit = django_settings.CONFIG["SOUVERAINE_COMPACTION_TIMEOUT_SECONDS"]
    step = None
    try:
        provider, handle, request = _request(context, cut, settings)
        step = await run_db(_new_step, context, provider, handle, request)
        async with asyncio.timeout(limit):
            text, usage = await _collect(provider, request)
        problem = "" if text else "it answered with no text"
        if usage is not None:
            step.prompt_tokens = usage.prompt_tokens
            step.completion_tokens = usage.completion_tokens
            step.cached_input_tokens = usage.cached_input_tokens
            step.reasoning_tokens = usage.reasoning_tokens
    except ProviderError as exc:
        text, problem = "", exc.provider_detail
    except SouveraineError as exc:
        text, problem = "", exc.message
    except TimeoutError:
        text, problem = "", f"no answer within {limit:g} seconds"
    if problem:
        notice = f"No model could summarise older messages, so excerpts of them are kept in view: {problem}"
        await run_db(add_notices, context.run, [notice])
    if step is not None:
        step.completed_at, step.stop_reason = timezone.now(), "end_turn"
        if problem:
            step.status, step.stop_reason = "failed", "error"
            step.error_type, step.error_data = "llm_error", {"message": problem}
    return summaries.clip(text, cut.limit_chars), step


def _new_step(
    context: TurnContext, provider: ChatProvider, handle: str, request: ChatRequest
) -> Step:
    run = context.run
    return Step(
        run=run,
        agent_id=run.agent_id,
        index=Step.objects.filter(run=run).count(),
        provider_name=provider.name,
        model=request.model,
        model_handle=handle,
        context_window=request.context_window,
        tags=[SUMMARY_TAG],
    )


async def _collect(provider: ChatProvider, request: ChatRequest) -> tuple[str, UsageDelta | None]:
    """Return the text of an answer without its reasoning, and what the call took."""
    pieces: list[str] = []
    usage: UsageDelta | None = None
    splitter, joiner = ThinkTagSplitter(), TextJoiner()
    async with aclosing(provider.stream(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                pieces += _said(splitter.feed(joiner.feed(delta.text)))
            elif isinstance(delta, UsageDelta):
                usage = delta
    pieces += _said(splitter.feed(joiner.end())) + _said(splitter.end())
    return "".join(pieces).strip(), usage


def _said(pieces: list[Piece]) -> list[str]:
    return [text for kind, text in pieces if kind == "text"]


def _request(
    context: TurnContext, cut: _Cut, settings: CompactionSettings
) -> tuple[ChatProvider, str, ChatRequest]:
    """Return who summarises, under which handle, and what it is asked."""
    if settings.is_by_agent:
        return context.provider, context.model_handle, _request_to_agent(context, cut, settings)
    provider, name, handle = context.provider, context.provider_model, context.model_handle
    if settings.model is not None:
        handle = settings.model
        provider, name = registry.resolve(handle, context.run.agent.owner_id)
    known = registry.known_model(handle, context.run.agent.owner_id)
    is_own = handle == context.model_handle
    window = cut.draft.size if is_own or known is None else known.context_window
    ratio = context.calibration if is_own else replace(context.calibration, ratio=1.2)
    output = _output_tokens(cut, settings, window)
    text = settings.prompt or summaries.SUMMARISE.render(max_words=_max_words(cut))
    room_chars = max(ratio.chars(window - output) - len(text) - FRAME_CHARS, FRAME_CHARS)
    material = summaries.transcript(cut.draft.window.summary, cut.leaving, room_chars)
    messages = [ChatMessage("system", text)]
    if settings.prompt_acknowledgement:
        messages += [
            ChatMessage("user", "Are you ready?"),
            ChatMessage("assistant", summaries.ACKNOWLEDGEMENT.text),
        ]
    request = ChatRequest(
        model=name,
        messages=[*messages, ChatMessage("user", material)],
        context_window=window,
        temperature=settings.model_settings.get("temperature"),
        max_tokens=output,
    )
    return provider, handle, request


def _request_to_agent(context: TurnContext, cut: _Cut, settings: CompactionSettings) -> ChatRequest:
    """The agent's own prompt up to the cut, then the question; what is too much of it is left out first."""
    draft = cut.draft
    output = _output_tokens(cut, settings, draft.size)
    room = draft.size - output - context.calibration.tokens(draft.fixed_estimate)
    text = settings.prompt or summaries.SUMMARISE_SELF.render(max_words=_max_words(cut))
    if settings.prompt_acknowledgement:
        text += "\n\nAnswer with the summary, and with nothing else."
    room -= _tokens_of(draft, len(text) + FRAME_CHARS)
    if draft.window.summary:
        room -= context.calibration.tokens(draft.estimates[0])
    costs = draft.row_costs[: cut.start]
    first = 0
    if sum(costs) > room:
        first = choose_start(cut.leaving, costs, keep_tokens=room, most_tokens=room)
    shown = [*([draft.window.summary] if draft.window.summary else []), *cut.leaving[first:]]
    history = seen_by_model(context, compile_history(shown, draft.system))
    own = context.run.agent.model_settings
    return ChatRequest(
        model=context.provider_model,
        messages=[*history, ChatMessage("user", text)],
        tools=draft.schemas,  # some providers refuse calls in a history without them
        context_window=context.context_window,
        temperature=settings.model_settings.get("temperature", own.get("temperature")),
        max_tokens=output,
    )


def _output_tokens(cut: _Cut, settings: CompactionSettings, window: int) -> int:
    wanted = settings.model_settings.get("max_output_tokens")
    default = _tokens_of(cut.draft, cut.limit_chars) + THINKING_TOKENS
    return max(1, min(int(wanted or default), int(window * OUTPUT_SHARE)))


def _max_words(cut: _Cut) -> int:
    return max(20, int(cut.limit_chars * WORDS_PER_CHAR))
