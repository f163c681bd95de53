"""What follows a failed model call: another try after a while, another model, or the end.

The one loop is the turn engine's; this decides for it. A provider may have a policy of its own and
models to fall back on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agents.providers.base import ChatProvider
from agents.providers.errors import REPEATABLE_TIMEOUT
from souveraine.errors import ProviderError

MAX_RETRY_AFTER_SECONDS = 60.0  # a provider may ask for hours; the person waits before the screen


@dataclass(frozen=True)
class RetryPolicy:
    """How often and after how many seconds a transient failure is tried again.

    The n-th delay is `first_delay_seconds` · `factor`ⁿ, at most `cap_seconds`; `jitter` is the
    share of it that is left to chance. Time-outs of the model behind a gateway are tried again
    `timeout_retries` times, since they take their whole time each; None: as often as others.
    """

    retries: int = 2
    first_delay_seconds: float = 0.5
    factor: float = 2.0
    cap_seconds: float = 8.0
    jitter: float = 0.0
    timeout_retries: int | None = None

    def delay_seconds(
        self, failures: int, retry_after: float | None, chance: Callable[[], float]
    ) -> float:
        """Give the wait after failure number `failures` (0, 1, …), never less than the provider
        asks for, up to MAX_RETRY_AFTER_SECONDS.
        """
        wait = min(self.first_delay_seconds * self.factor**failures, self.cap_seconds)
        wait *= 1 - self.jitter * chance()
        return max(wait, min(retry_after or 0.0, MAX_RETRY_AFTER_SECONDS))


BIFROST_RETRIES = RetryPolicy(
    retries=6, first_delay_seconds=0.3, cap_seconds=12.0, jitter=0.25, timeout_retries=1
)


@runtime_checkable
class HasRetryPolicy(Protocol):
    """A provider that wants other retries than the server's; `fallbacks` are names of its models,
    tried in order.
    """

    retry_policy: RetryPolicy
    fallbacks: Sequence[str]


class Attempts:
    """The tries of one model call. `model` is the one to ask now."""

    def __init__(
        self,
        policy: RetryPolicy,
        model: str,
        fallbacks: Sequence[str] = (),
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self._policy, self._chance = policy, chance
        self._fallbacks = [name for name in dict.fromkeys(fallbacks) if name != model]
        self._failures = self._timeouts = 0

    @classmethod
    def of(cls, provider: ChatProvider, model: str, default: RetryPolicy) -> Attempts:
        """Make the attempts for a provider; `default` when it has no policy of its own."""
        if isinstance(provider, HasRetryPolicy):
            return cls(provider.retry_policy, model, provider.fallbacks)
        return cls(default, model)

    def after(self, error: ProviderError) -> float | None:
        """Give the seconds to wait before the next try; None when there is none.

        May have changed `model` then: a fallback starts with all its retries.
        """
        if error.is_transient and self._may_retry(error):
            retry_after = error.data.get("retry_after_seconds")
            wait = self._policy.delay_seconds(self._failures, retry_after, self._chance)
            self._failures += 1
            return wait
        # No money at one model's owner says nothing of the next one.
        is_unavailable = error.is_transient or error.error_type == "llm_insufficient_credits"
        if not is_unavailable or not self._fallbacks:
            return None
        self.model = self._fallbacks.pop(0)
        self._failures = self._timeouts = 0
        return 0.0

    def _may_retry(self, error: ProviderError) -> bool:
        if self._failures >= self._policy.retries:
            return False
        allowed = self._policy.timeout_retries
        if allowed is None or not error.data.get(REPEATABLE_TIMEOUT):
            return True
        self._timeouts += 1
        return self._timeouts <= allowed
