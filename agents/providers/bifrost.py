"""Bifrost: a gateway with OpenAI's protocol, patient retries and models to fall back on."""

from __future__ import annotations

from collections.abc import Sequence

from agents.providers.errors import Endpoint
from agents.providers.openai import OpenAIProvider
from agents.providers.retry import BIFROST_RETRIES, RetryPolicy


class BifrostProvider(OpenAIProvider):
    """One Bifrost. `fallbacks` are its models that the turn engine tries, in order, when one fails
    for good before any output.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_seconds: float,
        default_context_window: int,
        fallbacks: Sequence[str] = (),
    ) -> None:
        super().__init__(
            endpoint,
            timeout_seconds=timeout_seconds,
            default_context_window=default_context_window,
        )
        self.retry_policy: RetryPolicy = BIFROST_RETRIES
        # The setting may give them as handles; a model is known here without the provider.
        self.fallbacks: Sequence[str] = [
            name.removeprefix(f"{endpoint.name}/") for name in fallbacks
        ]
