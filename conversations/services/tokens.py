"""Prompt tokens: estimated from characters, corrected by what the provider counts or refuses (architecture §9).

`estimate_*` are uncorrected; `Calibration.tokens` turns them into the tokens of one conversation's model.
Nothing here asks a provider or downloads a tokenizer.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from conversations.models import Message

CHARS_PER_TOKEN = 3.6  # of English with some code
MESSAGE_OVERHEAD_TOKENS = 6
IMAGE_TOKENS = 1000
LEAST_RATIO = 0.8  # below it the count left out what the provider had cached
MOST_RATIO = 12.0  # one character can be several tokens; more is an error of the count
EASING = 0.95  # how fast a high ratio comes down: a cut too early is cheaper than a refusal
LIMIT_GROWTH = 1.05  # per answered call: a server may have been started anew with a larger window
REFUSED_MARGIN = 1.1
SMALLEST_WINDOW = 256

_TOLD_LIMIT = re.compile(
    r"(?:maximum context length(?: is| of)?|context (?:size|window|limit)\D{0,40}?|n_ctx\W{1,4}|>)"
    r"\s*\(?(\d{3,9})",
    re.IGNORECASE,
)
_TOLD_COUNT = re.compile(
    r"(?:resulted in|requested|n_prompt_tokens\W{1,4}|too long:)\s*(?:about\s*)?(\d{3,9})",
    re.IGNORECASE,
)


def estimate_tokens(message: Message) -> int:
    """Estimate the prompt tokens of one row."""
    chars = len(message.text) + sum(
        len(c["name"]) + len(c["arguments"]) for c in message.tool_calls
    )
    images = 0
    for part in message.content or []:
        images += part.get("type") == "image"
    return int(chars / CHARS_PER_TOKEN) + images * IMAGE_TOKENS + MESSAGE_OVERHEAD_TOKENS


def estimate_text_tokens(value: Any) -> int:
    """Estimate the tokens of a text, or of JSON such as tool schemas."""
    text = value if isinstance(value, str) else json.dumps(value)
    return int(len(text) / CHARS_PER_TOKEN)


@dataclass
class Calibration:
    """What is known of a model's counting in one conversation; kept in `Conversation.calibration`.

    `ratio`: its tokens per estimated token. `measured`: the same as its last count said, None before the
    first. `limit`: the window in tokens that a refusal told, when smaller than the one believed in.
    """

    model: str
    ratio: float = 1.0
    measured: float | None = None
    limit: int | None = None

    @classmethod
    def load(cls, stored: dict[str, Any] | None, model: str) -> Calibration:
        """Read the stored form; another model's is not used."""
        if not stored or stored.get("model") != model:
            return cls(model)
        return cls(model, stored["ratio"], stored["measured"], stored["limit"])

    def dump(self) -> dict[str, Any]:
        """Return the stored form."""
        return asdict(self)

    def tokens(self, estimate: int) -> int:
        """Turn an estimate into tokens of this model."""
        return int(estimate * self.ratio)

    def chars(self, tokens: int) -> int:
        """Return how many characters about that many tokens are."""
        return int(tokens * CHARS_PER_TOKEN / self.ratio)

    def window(self, context_window: int) -> int:
        """Return the window that can really be used."""
        return min(context_window, self.limit) if self.limit else context_window

    def surely(self, estimate: int) -> int:
        """Return the tokens that the estimate stands for at least: what a prompt is given up by unasked."""
        return int(estimate * (LEAST_RATIO if self.measured is None else self.measured))

    def counted(self, estimate: int, prompt_tokens: int) -> None:
        """Learn from the provider's count of a prompt that it took."""
        if estimate <= 0 or prompt_tokens <= 0:
            return
        self.measured = min(max(prompt_tokens / estimate, LEAST_RATIO), MOST_RATIO)
        is_first = self.ratio == 1.0
        self.ratio = self.measured if is_first else max(self.measured, self.ratio * EASING)
        if self.limit is not None:
            self.limit = max(int(self.limit * LIMIT_GROWTH), prompt_tokens)

    def refused(self, estimate: int, context_window: int, text: str) -> None:
        """Learn from a refusal: by the numbers in its text, else that the prompt was above the window.

        Afterwards the same estimate stands for more than the window.
        """
        limit, count = _number(_TOLD_LIMIT, text), _number(_TOLD_COUNT, text)
        if limit is not None and SMALLEST_WINDOW <= limit < self.window(context_window):
            self.limit = limit
        window = self.window(context_window)
        if self.tokens(estimate) <= window * REFUSED_MARGIN:
            told = count if count is not None and count > window else window
            self.ratio = min(told * REFUSED_MARGIN / max(estimate, 1), MOST_RATIO)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found.group(1)) if found else None
