"""Embedding models: which ones the configured providers really have, and texts into vectors.

There is no fallback: a handle means one model of one provider, and when that cannot be asked, its error is
raised. Vectors come out as bytes (little-endian float32, unit length), so that nobody needs numpy to store
one.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from agents.providers import registry
from agents.providers.base import ChatProvider, EmbeddingModel, EmbeddingProvider
from souveraine.errors import InvalidArgument, NotFound, ProviderError, Unavailable

EMBEDDED_CHARS = 1500  # small models read 512 tokens and refuse longer texts
BATCH = 32
LISTING_SECONDS = 60.0
RECHECK_SECONDS = 0.5  # a missing model may have been pulled just now
QUERY_SECONDS = 5.0  # a search waits so long for the vector of its query
BATCH_SECONDS = 60.0
PROBE_SECONDS = 10.0  # a model may have to be loaded first
CHUNK_TOKENS = 300  # what the old server shows; nothing is cut into chunks here
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class _Listing:
    providers: dict[str, ChatProvider]
    models: list[EmbeddingModel]
    problems: dict[str, str]
    made_at: float


@dataclass
class _State:
    listing: _Listing | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_state = _State()


def list_embedding_models(*, refresh: bool = False) -> list[EmbeddingModel]:
    """List the embedding models of all providers; may block for some seconds."""
    return list(_listing(0.0 if refresh else LISTING_SECONDS).models)


def get_embedding_model(handle: str) -> EmbeddingModel:
    """Give the model of a handle; may block for some seconds.

    Raises InvalidArgument for a handle without a provider, NotFound when the provider has no such model,
    Unavailable when it could not be asked.
    """
    provider, name = registry.resolve(handle)
    for max_age in (LISTING_SECONDS, RECHECK_SECONDS):
        listing = _listing(max_age)
        for model in listing.models:
            if model.provider_name == provider.name and model.name in (name, f"{name}:latest"):
                return model
    if problem := listing.problems.get(provider.name):
        raise Unavailable(f"The models of {provider.name} cannot be listed: {problem}")
    raise NotFound(
        f"NOT_FOUND: Handle {handle} not found, must be one of {[m.handle for m in listing.models]}"
    )


def config_of(model: EmbeddingModel, dimensions: int) -> dict[str, Any]:
    """Give Letta's EmbeddingConfig of a model."""
    return {
        "embedding_endpoint_type": model.endpoint_type,
        "embedding_endpoint": model.endpoint,
        "embedding_model": model.name,
        "embedding_dim": dimensions,
        "embedding_chunk_size": CHUNK_TOKENS,
        "handle": model.handle,
        "batch_size": BATCH,
        "azure_endpoint": None,
        "azure_version": None,
        "azure_deployment": None,
    }


def full_config(handle: str) -> dict[str, Any]:
    """Give the EmbeddingConfig of a model that is there; one that does not tell its size embeds a word for it.

    Raises as `get_embedding_model` and `embed`.
    """
    model = get_embedding_model(handle)
    size = model.dimensions
    if size is None:
        [vector] = embed(model.handle, ["size"], timeout_seconds=PROBE_SECONDS)
        size = len(vector) // _FLOAT_BYTES
    return config_of(model, size)


def embed(
    handle: str, texts: Sequence[str], *, timeout_seconds: float = BATCH_SECONDS
) -> list[bytes]:
    """Give a vector for each text, each text cut to EMBEDDED_CHARS; may block for `timeout_seconds` per BATCH.

    Raises InvalidArgument for a handle that no provider with embeddings has, else ProviderError or Unavailable.
    """
    provider, name = registry.resolve(handle)
    if not isinstance(provider, EmbeddingProvider):
        raise InvalidArgument(f"The provider of {handle} has no embeddings. Choose another model.")
    vectors: list[bytes] = []
    for start in range(0, len(texts), BATCH):
        batch = [text[:EMBEDDED_CHARS] or " " for text in texts[start : start + BATCH]]
        found = provider.embed(name, batch, timeout_seconds=timeout_seconds)
        vectors += [_packed(handle, vector) for vector in found]
        if len(vectors) != start + len(batch):
            raise _odd(handle, f"{len(found)} vectors for {len(batch)} texts")
    if len({len(vector) for vector in vectors}) > 1:
        raise _odd(handle, "vectors of several lengths")
    return vectors


def unpacked(vector: bytes) -> list[float]:
    """Give the numbers of a stored vector."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _packed(handle: str, vector: Any) -> bytes:
    try:
        length = math.sqrt(sum(x * x for x in vector))
        if not 0 < length < math.inf:
            raise ValueError("a vector without a direction")
        numbers = array("f", [x / length for x in vector])
    except (TypeError, ValueError, OverflowError) as exc:
        raise _odd(handle, f"no vector of numbers ({exc})") from None
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _odd(handle: str, what: str) -> ProviderError:
    return ProviderError("llm_error", f"The embedding model {handle} gave {what}.")


def _listing(max_age_seconds: float) -> _Listing:
    """Give the kept listing of the present providers, renewed when it is older than that."""
    known = registry.providers()
    asked_at = time.monotonic()
    with _state.lock:
        kept = _state.listing
        is_same = kept is not None and kept.providers == known
        if kept is None or not is_same or kept.made_at < asked_at - max_age_seconds:
            kept = _state.listing = _gather(known)
        return kept


def _gather(known: dict[str, ChatProvider]) -> _Listing:
    able = {name: p for name, p in known.items() if isinstance(p, EmbeddingProvider)}
    models: list[EmbeddingModel] = []
    problems: dict[str, str] = {}
    with ThreadPoolExecutor(max(1, len(able)), thread_name_prefix="list-embeddings") as pool:
        futures = {name: pool.submit(p.list_embedding_models) for name, p in able.items()}
        for name, future in futures.items():
            try:
                models += future.result()
            except ProviderError as exc:
                problems[name] = exc.provider_detail
            except Unavailable as exc:
                problems[name] = exc.message
    return _Listing(known, models, problems, time.monotonic())
