"""Providers that people added: from rows to what can be asked. Kept in memory, so that a turn's event loop need not
read the database; `refresh` reads them, one query.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

import httpx
from django.conf import settings

from agents.models import Provider
from agents.providers.anthropic import ANTHROPIC_URL, ANTHROPIC_VERSION, AnthropicProvider
from agents.providers.base import ChatProvider, join_url
from agents.providers.errors import Endpoint
from agents.providers.ollama import OllamaProvider
from agents.providers.openai import OPENAI_URL, OpenAIProvider
from souveraine.config import normalise_base_url
from souveraine.errors import InvalidArgument, SouveraineError
from souveraine.lib.secrets import decrypt

logger = logging.getLogger(__name__)

# Of those that speak OpenAI's protocol; an empty one must be given.
OPENAI_COMPATIBLE = {
    "openai": OPENAI_URL,
    "baseten": "",
    "cerebras": "https://api.cerebras.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "google_ai": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "hugging-face": "https://router.huggingface.co/v1",
    "lmstudio_openai": "",
    "minimax": "https://api.minimax.io/v1",
    "mistral": "https://api.mistral.ai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "sglang": "",
    "together": "https://api.together.xyz/v1",
    "vllm": "",
    "xai": "https://api.x.ai/v1",
    "zai": "https://api.z.ai/api/paas/v4",
}
OTHERS = ("anthropic", "ollama")
NAMED_BY_LETTA = ("azure", "bedrock", "chatgpt_oauth", "google_vertex", "letta", "zai_coding")


@dataclass(frozen=True)
class StoredProvider:
    """A provider of one owner."""

    owner_id: uuid.UUID
    updated_at: datetime
    provider: ChatProvider


@dataclass
class _Kept:
    providers: dict[str, StoredProvider] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_kept = _Kept()


def kept() -> Mapping[str, StoredProvider]:
    """Return what was read last, by name; asks nobody."""
    return _kept.providers


def refresh() -> bool:
    """Read the rows; tells whether something has changed. Providers that have not stay the same objects."""
    rows = {row.name: row for row in Provider.objects.all()}
    with _kept.lock:
        before = _kept.providers
        found = {name: _stored(row, before.get(name)) for name, row in rows.items()}
        _kept.providers = {name: entry for name, entry in found.items() if entry is not None}
        return before != _kept.providers


def _stored(row: Provider, before: StoredProvider | None) -> StoredProvider | None:
    """Return the provider of a row; None for one that cannot be built, which must not cost others theirs."""
    if before is not None and before.updated_at == row.updated_at:
        return before
    try:
        return StoredProvider(row.owner_id, row.updated_at, provider_of(row))
    except SouveraineError as exc:
        logger.warning(
            "event=provider_left_out provider_id=provider-%s error=%s", row.pk, exc.message
        )
        return None


def provider_of(row: Provider) -> ChatProvider:
    """Return what asks the provider of a row."""
    key = decrypt(row.api_key_encrypted) if row.api_key_encrypted else ""
    return build(row.name, row.provider_type, row.base_url, key)


def build(name: str, provider_type: str, base_url: str, api_key: str) -> ChatProvider:
    """Return what asks a provider of this type. Raises InvalidArgument for a type, URL or key that cannot be used."""
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise InvalidArgument(
            "The api_key has characters that no HTTP header can carry. Copy it again, without line ends."
        )
    silence = float(settings.CONFIG["SOUVERAINE_MODEL_TIMEOUT_SECONDS"])
    window = int(settings.CONFIG["SOUVERAINE_MODEL_CONTEXT_WINDOW"])
    url = _checked(provider_type, base_url.strip().rstrip("/"))
    label = f"The provider {name}"
    if provider_type == "anthropic":
        endpoint = Endpoint(
            name,
            label,
            join_url(normalise_base_url(url), "v1"),
            api_key=api_key,
            key_header="x-api-key",
            headers={"anthropic-version": ANTHROPIC_VERSION},
        )
        return AnthropicProvider(endpoint, timeout_seconds=silence)
    if provider_type == "ollama":
        endpoint = Endpoint(name, label, normalise_base_url(url), api_key=api_key)
        return OllamaProvider(endpoint, timeout_seconds=silence, default_context_window=window)
    endpoint = Endpoint(name, label, url, api_key=api_key)
    return OpenAIProvider(endpoint, timeout_seconds=silence, default_context_window=window)


def _checked(provider_type: str, url: str) -> str:
    if provider_type not in OPENAI_COMPATIBLE and provider_type not in OTHERS:
        known = ", ".join(sorted([*OPENAI_COMPATIBLE, *OTHERS]))
        raise InvalidArgument(
            f"Providers of the type {provider_type!r} are not supported here. Choose one of {known}; any "
            "OpenAI-compatible server works as `openai` with its base_url."
        )
    url = url or OPENAI_COMPATIBLE.get(provider_type) or ""
    if not url and provider_type == "anthropic":
        url = ANTHROPIC_URL
    if not url.startswith(("http://", "https://")):
        raise InvalidArgument(
            f"A provider of the type {provider_type!r} needs a base_url that begins with http:// or https://."
        )
    _check_url(url)
    return url


def _check_url(url: str) -> None:
    try:
        urlsplit(url)  # refuses brackets that httpx takes
        host = httpx.URL(url).host
        host.encode("idna")  # as the resolver will
    except (httpx.InvalidURL, ValueError) as exc:
        raise InvalidArgument(f"This base_url cannot be used: {exc}") from None
    if not host:
        raise InvalidArgument("This base_url names no host.")
