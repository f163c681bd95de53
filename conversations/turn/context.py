"""What the graph's nodes know of their turn. Passed as LangGraph's context: never stored in a checkpoint."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.models import Tool
from agents.providers.base import ChatProvider
from conversations.models import Conversation, Run, ToolCall
from conversations.services.tokens import Calibration
from conversations.turn.emitter import Emitter
from conversations.turn.guide import Guide
from conversations.turn.tool_rules import ToolRules


@dataclass
class PartialAnswer:
    """What a model call has streamed so far; kept when the turn is cancelled."""

    message_id: uuid.UUID
    step_id: uuid.UUID
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Gates:
    """Which calls wait for a client: its own tools, and tools that require approval.

    `denied` holds what a person decided for good: {tool name: reason}.
    """

    client_tools: tuple[dict[str, Any], ...] = ()
    approval: frozenset[str] = frozenset()
    denied: Mapping[str, str] = field(default_factory=dict)

    def of(self, tool_name: str) -> str:
        """Return the gate of a call, "" when it waits for nobody. A client's tool comes before ours."""
        if any(tool["name"] == tool_name for tool in self.client_tools):
            return ToolCall.Gate.CLIENT.value
        return ToolCall.Gate.APPROVAL.value if tool_name in self.approval else ""


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
    gates: Gates = field(default_factory=Gates)
    settings: dict[str, Any] = field(default_factory=dict)  # those that the conversation sets
    isolated: Mapping[str, str] = field(default_factory=dict)  # {label: block} of its own blocks
    claimed: Conversation | None = None  # as claimed, for the first prompt; later ones read it anew
    rules: ToolRules | None = None
    guide: Guide | None = None  # what the rules say to the present model call
    is_last_step: bool = False
    is_hinted: bool = False  # the answer stored last is followed by a hint, so the turn goes on
    partial: PartialAnswer | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    prompt_estimate: int = 0  # of the request made last, uncorrected
    refusals: int = 0  # how often the provider found the prompt of the present call too large

    @property
    def options(self) -> dict[str, Any]:
        """The model's settings: what the conversation sets goes before the agent's."""
        return {**self.run.agent.model_settings, **self.settings}

    @property
    def response_format(self) -> dict[str, Any] | None:
        """The form that the answer must have, if there is one."""
        config: dict[str, Any] = self.run.agent.config
        wanted: dict[str, Any] | None = self.options.get("response_format")
        return wanted or config.get("response_format")

    @property
    def tool_names(self) -> list[str]:
        """All tools that there are, the client's among them."""
        return [schema["name"] for schema in self._all_schemas]

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """What the model is offered: our tools, then the client's, as far as the rules allow them now."""
        if self.guide is None:
            return self._all_schemas
        offered = set(self.guide.offered)
        return [schema for schema in self._all_schemas if schema["name"] in offered]

    @property
    def _all_schemas(self) -> list[dict[str, Any]]:
        """Our tools and the client's, which hide ours of the same name."""
        hidden = {tool["name"] for tool in self.gates.client_tools}
        return [
            *(tool.json_schema for tool in self.tools if tool.name not in hidden),
            *self.gates.client_tools,
        ]

    def gates_of(self, names: Sequence[str]) -> list[str]:
        """Return the gate of each call of an answer; a forbidden call waits for nobody."""
        gates = [self.gates.of(name) for name in names]
        if self.guide is None:
            return gates
        permitted = self.guide.permitted(names)
        return [gate if allowed else "" for gate, allowed in zip(gates, permitted, strict=True)]

    @property
    def max_steps(self) -> int:
        """Model calls that this run may make."""
        return int(self.run.request.get("max_steps") or 50)
