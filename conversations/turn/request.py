"""The request of the next model call: what stands in the prompt, what it takes, and whether it fits.

`draft_prompt` reads, `request_of` makes the request out of it; between the two `turn.compaction` makes room.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from agents.providers import registry
from agents.providers.base import ChatMessage, ChatRequest
from agents.providers.capabilities import without_images, without_unfetched
from agents.services.memory import sync_blocks
from conversations.models import Conversation, Message
from conversations.services.prompt import (
    ensure_system_message,
    is_current,
    skills_text,
    stored_system,
)
from conversations.services.runs import fenced
from conversations.services.summaries import common_length
from conversations.services.tokens import (
    MESSAGE_OVERHEAD_TOKENS,
    estimate_text_tokens,
    estimate_tokens,
)
from conversations.services.window import IN_PROMPT, Window, load_window
from conversations.turn.context import TurnContext
from conversations.turn.history import compile_history
from conversations.turn.tool_calls import cap_text
from souveraine.errors import ProviderError

OUTPUT_SHARE = 0.25  # of the window is kept for the answer at most
LEAST_OUTPUT_SHARE = 0.03
LEAST_RETURN_CHARS = 200
SYSTEM_OVERFLOW = "context_window_overflow_in_system_prompt"
OVERFLOW = "context_window_overflow"


@dataclass(frozen=True)
class Draft:
    """The prompt as it is now. `estimates` of `window.messages`, and `fixed_estimate` (system prompt and
    tools), are uncorrected; the properties are in tokens of the model.
    """

    context: TurnContext
    conversation: Conversation
    system: str
    window: Window
    schemas: list[dict[str, Any]]
    fixed_estimate: int
    estimates: list[int]

    @property
    def estimate(self) -> int:
        """The whole prompt, uncorrected."""
        return self.fixed_estimate + sum(self.estimates)

    @property
    def tokens(self) -> int:
        """The whole prompt."""
        return self.context.calibration.tokens(self.estimate)

    @property
    def size(self) -> int:
        """The window that the model really has."""
        return self.context.calibration.window(self.context.context_window)

    @property
    def budget(self) -> int:
        """What the prompt may take, so that there is room for the answer."""
        return self.size - _max_tokens(self.context, self.size)

    @property
    def fits(self) -> bool:
        return self.tokens <= self.budget

    @property
    def room(self) -> int:
        """What is left of the budget for messages."""
        return self.budget - self.context.calibration.tokens(self.fixed_estimate)

    @property
    def row_costs(self) -> list[int]:
        """What each of `window.rows` takes."""
        rows = self.estimates[1:] if self.window.summary else self.estimates
        return [self.context.calibration.tokens(estimate) for estimate in rows]


def _max_tokens(context: TurnContext, window: int) -> int:
    wanted = int(context.options.get("max_output_tokens") or 4096)
    return max(1, min(wanted, int(window * OUTPUT_SHARE)))


def _conversation_of(context: TurnContext) -> Conversation:
    """Return the conversation with its agent and their memory as they are now.

    What was read at the start of the turn is as new as that for the first prompt, and read only once.
    """
    claimed, context.claimed = context.claimed, None
    if claimed is not None:
        return claimed
    sync_blocks(context.run.agent)
    return Conversation.objects.select_related("agent").get(pk=context.run.conversation_id)


def draft_prompt(context: TurnContext) -> Draft:
    """Compile the prompt from the present memory and the window. Writes only under the run's fence."""
    run = context.run
    conversation = _conversation_of(context)
    if not is_current(conversation):
        with fenced(run):
            conversation = (
                Conversation.objects.select_related("agent")
                .select_for_update(of=("self",))
                .get(pk=run.conversation_id)
            )
            ensure_system_message(conversation)
    override = run.request.get("override_system")
    system = (override or stored_system(conversation)) + skills_text(
        run.request.get("client_skills") or []
    )
    schemas = context.schemas
    window = load_window(conversation, *IN_PROMPT)
    return Draft(
        context=context,
        conversation=conversation,
        system=system,
        window=window,
        schemas=schemas,
        fixed_estimate=estimate_text_tokens(system)
        + MESSAGE_OVERHEAD_TOKENS
        + (estimate_text_tokens(schemas) if schemas else 0),
        estimates=[estimate_tokens(row) for row in window.messages],
    )


def request_of(draft: Draft) -> ChatRequest:
    """Return the request. Long tool returns are shortened in it when nothing else can make room.

    Raises ProviderError when the prompt is surely larger than the window.
    """
    context = draft.context
    messages, estimate = draft.window.messages, draft.estimate
    if not draft.fits:
        messages = _with_short_returns(draft)
        estimate = draft.fixed_estimate + sum(estimate_tokens(row) for row in messages)
        _refuse_too_large(draft, estimate)
    context.prompt_estimate = estimate
    options = context.options
    left = draft.size - context.calibration.tokens(estimate)
    least = max(1, int(draft.size * LEAST_OUTPUT_SHARE))
    return ChatRequest(
        model=context.provider_model,
        messages=seen_by_model(context, compile_history(messages, draft.system)),
        tools=draft.schemas,
        context_window=context.context_window,
        temperature=options.get("temperature"),
        max_tokens=min(_max_tokens(context, draft.size), max(left, least)),
        parallel_tool_calls=options.get("parallel_tool_calls") if draft.schemas else None,
        response_format=context.response_format,
    )


def seen_by_model(context: TurnContext, messages: list[ChatMessage]) -> list[ChatMessage]:
    """Replace what the present model cannot take."""
    messages = without_unfetched(messages)
    model = registry.known_model(context.model_handle, context.run.agent.owner_id)
    return messages if model is None or model.can("vision") else without_images(messages)


def _with_short_returns(draft: Draft) -> list[Message]:
    """Return the window with its tool returns cut, the longest first; the stored rows stay as they are."""
    excess = draft.context.calibration.chars(draft.tokens - draft.budget)
    lengths = [len(row.text) for row in draft.window.rows if row.role == Message.Role.TOOL]
    limit = max(common_length(lengths, max(sum(lengths) - excess, 0)), LEAST_RETURN_CHARS)
    return [
        _shortened(row, limit) if row.role == Message.Role.TOOL else row
        for row in draft.window.messages
    ]


def _shortened(row: Message, limit_chars: int) -> Message:
    if len(row.text) <= limit_chars:
        return row
    short = copy.copy(row)
    short.text = cap_text(row.text, limit_chars)
    return short


def _refuse_too_large(draft: Draft, estimate: int) -> None:
    """Give up a prompt that cannot be made to fit: unasked only when a count of the provider says so."""
    context = draft.context
    measure = context.calibration.tokens if context.refusals else context.calibration.surely
    if measure(estimate) <= draft.size:
        return
    fixed, size = measure(draft.fixed_estimate), draft.size
    if fixed > size * (1 - LEAST_OUTPUT_SHARE):
        raise ProviderError(
            SYSTEM_OVERFLOW,
            f"INVALID_ARGUMENT: The system prompt with its memory blocks and tools takes about {fixed} tokens, but the "
            f"context window of {context.model_handle} has {size}. Shorten the system prompt or the blocks, detach "
            "tools, close files, or choose a model with a larger window.",
            stop_reason=SYSTEM_OVERFLOW,
        )
    raise ProviderError(
        OVERFLOW,
        f"INVALID_ARGUMENT: The newest message alone does not fit: with the system prompt ({fixed} tokens) it takes "
        f"about {measure(estimate)} tokens, but the context window of {context.model_handle} has {size}. Send it in "
        "smaller pieces, or choose a model with a larger window. The conversation goes on with your next message.",
    )
