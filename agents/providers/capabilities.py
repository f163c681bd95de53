"""What follows for a turn from what its model can (`model_hints` reads that).

A choice that a model cannot carry out never stays silent: an image for a model without vision is
refused, missing tools and a smaller window are told as notices. What is not known is tried.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.providers import registry
from agents.providers.base import ChatMessage, ModelInfo
from souveraine.errors import SouveraineError, ValidationFailed

Part = dict[str, Any]


@dataclass(frozen=True)
class Fit:
    """How a turn can use a model. `context_window` in tokens; `notices` are for the user."""

    context_window: int
    uses_tools: bool
    notices: tuple[str, ...] = ()


def fit(
    model: ModelInfo | None,
    *,
    handle: str,
    context_window: int,
    has_tools: bool,
    is_agents_own: bool = True,
) -> Fit:
    """Fit an agent's wishes to a model; `model` None: nothing is known of it, so all is tried.

    `context_window` is the agent's; it says nothing of a model that was not chosen with it
    (`is_agents_own` False): then that model's whole window is used.
    """
    if model is None:
        return Fit(context_window, has_tools)
    notices = []
    if has_tools and not model.can("tools"):
        notices.append(
            f"The model {handle} cannot call tools, so it works without them: it reads its memory "
            "but cannot change it. Choose a model with the capability `tools` to give them back."
        )
    if is_agents_own and context_window > model.context_window:
        notices.append(
            f"The context window of {context_window} tokens is larger than that of {handle}, so "
            f"{model.context_window} tokens are used."
        )
    window = min(context_window, model.context_window) if is_agents_own else model.context_window
    return Fit(window, has_tools and model.can("tools"), tuple(notices))


def refuse_images(
    handle: str, contents: Iterable[Sequence[Part] | None], owner_id: uuid.UUID | None = None
) -> None:
    """Raise ValidationFailed (422) when some content holds an image and the model cannot see.

    Call it before anything is stored. Only with an image it may ask the provider, for some seconds;
    a model that cannot be asked about is not refused here, its turn will tell.
    """
    if not any(part.get("type") == "image" for content in contents for part in content or ()):
        return
    try:
        model = registry.get_model(handle, owner_id)
    except SouveraineError:
        return
    if not model.can("vision"):
        raise ValidationFailed(
            f"The model {handle} cannot see images, so the message was not stored. Send it without "
            "the image, or choose a model with the capability `vision` (see /v1/models/)."
        )


def without_images(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Put a text in the place of each image, for a model that would refuse the whole prompt.

    A conversation may hold images from the time of another model.
    """
    return [
        message
        if isinstance(message.content, str)
        else replace(message, content=[_without_image(part) for part in message.content])
        for message in messages
    ]


def without_unfetched(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Put a text in the place of each image that is only an address: providers are not sent to fetch."""
    return [
        message
        if isinstance(message.content, str)
        else replace(message, content=[_fetched(part) for part in message.content])
        for message in messages
    ]


def _fetched(part: Part) -> Part:
    source = part.get("source") or {}
    if part.get("type") != "image" or source.get("data"):
        return part
    why = source.get("error") or "it is not there"
    return {"type": "text", "text": f"[an image that could not be fetched: {why}]"}


def _without_image(part: Part) -> Part:
    if part.get("type") != "image":
        return part
    return {"type": "text", "text": "[an image that the present model cannot see]"}
