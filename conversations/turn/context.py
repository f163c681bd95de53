"""What the graph's nodes know of their turn. Passed as LangGraph's context: never stored in a checkpoint."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from agents.models import Tool
from agents.providers.base import ChatProvider
from conversations.models import Run
from conversations.services.tokens import Calibration
from conversations.turn.emitter import Emitter


@dataclass
class PartialAnswer:
    """What a model call has streamed so far; kept when the turn is cancelled."""

    message_id: uuid.UUID
    step_id: uuid.UUID
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)


@dataclass
class TurnContext:
    """One claimed run and what its nodes need."""

    run: Run
    emitter: Emitter
    provider: ChatProvider
    provider_model: str
    model_handle: str
    context_window: int
    tools: list[Tool]
    tool_slots: asyncio.Semaphore
    calibration: Calibration
    partial: PartialAnswer | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    prompt_estimate: int = 0  # of the request made last, uncorrected
    refusals: int = 0  # how often the provider found the prompt of the present call too large

    @property
    def max_steps(self) -> int:
        """Model calls that this run may make."""
        return int(self.run.request.get("max_steps") or 50)
