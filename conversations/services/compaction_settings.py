"""An agent's `compaction_settings` (contract §13, CompactionSettings) as compaction uses them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agents.models import Agent

DEFAULT_PERCENTAGE = 0.3
DEFAULT_CLIP_CHARS = 50_000
SUMMARY_SHARE = 0.15  # of the window is a summary at most, whatever `clip_chars` allows
CLOUD_PREFIX = (
    "letta/"  # Letta Code asks for `letta/auto`: the server's choice, which is the agent's own
)


@dataclass(frozen=True)
class CompactionSettings:
    """How a window is shortened.

    `model` summarises in the modes `all` and `sliding_window`, the agent's own when it is None; in the
    self_compact modes the agent itself does, in its own conversation. `keep_share` of the context window
    stays in the sliding modes. `clip_chars` bounds the summary, None: only the window does.
    """

    mode: str = "sliding_window"
    model: str | None = None
    model_settings: dict[str, Any] = field(default_factory=dict)
    prompt: str | None = None
    prompt_acknowledgement: bool = False
    clip_chars: int | None = DEFAULT_CLIP_CHARS
    keep_share: float = DEFAULT_PERCENTAGE

    @classmethod
    def of(cls, agent: Agent, override: dict[str, Any] | None = None) -> CompactionSettings:
        """Return the agent's settings, with those of a request in their place where it names them."""
        given = {**(agent.compaction_settings or {}), **(override or {})}
        model = given.get("model") or None
        return cls(
            mode=given.get("mode") or cls.mode,
            model=None if model and model.startswith(CLOUD_PREFIX) else model,
            model_settings=given.get("model_settings") or {},
            prompt=given.get("prompt") or None,
            prompt_acknowledgement=bool(given.get("prompt_acknowledgement")),
            clip_chars=given.get("clip_chars", DEFAULT_CLIP_CHARS),
            keep_share=given.get("sliding_window_percentage") or DEFAULT_PERCENTAGE,
        )

    @property
    def is_by_agent(self) -> bool:
        """The agent itself summarises."""
        return self.mode.startswith("self_compact")

    @property
    def keeps_tail(self) -> bool:
        """Recent messages stay beside the summary."""
        return self.mode.endswith("sliding_window")

    def limit_chars(self, window_chars: int) -> int:
        """Return how long a summary may be in a window of so many characters."""
        most = int(window_chars * SUMMARY_SHARE)
        return most if self.clip_chars is None else min(self.clip_chars, most)
