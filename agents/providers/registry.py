"""Which providers are configured, which models they have, and whose model a handle means.

A handle is `provider/model`, split at the first slash. The web process lists and checks here, the
worker resolves and streams. Listings are kept for a few seconds and shared by all threads; a
provider that cannot be asked is noted in `provider_problems`, never raised.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from django.conf import settings
from django.utils.module_loading import import_string

from agents.providers import stored
from agents.providers.anthropic import ANTHROPIC_URL, ANTHROPIC_VERSION, AnthropicProvider
from agents.providers.base import ChatProvider, ModelInfo, join_url
from agents.providers.bifrost import BifrostProvider
from agents.providers.errors import Endpoint
from agents.providers.local import LocalProvider
from agents.providers.ollama import OllamaProvider
from agents.providers.openai import OPENAI_URL, OpenAIProvider
from souveraine.config import normalise_base_url
from souveraine.errors import InvalidArgument, NotFound, ProviderError, Unavailable

LISTING_SECONDS = (
    5.0  # a page shows models several times; a new `ollama pull` appears within this time
)
HANDLE_SECONDS = 60.0  # a handle that was there shortly ago: a provider that hangs must not slow it
RECHECK_SECONDS = (
    0.5  # a missing handle may have been pulled just now, but must not flood providers
)
GATHER_SECONDS = 10.0  # above each provider's own deadlines
ALIASES = {"openai-proxy": "openai"}  # the old server's name for OpenAI-compatible endpoints
_WARM_UPS = tuple(
    f"agents.providers.langchain_{kind}_stream.warm_up" for kind in ("openai", "ollama")
)


@dataclass
class _Listing:
    """The outcome of asking every provider once. `made_at` is monotonic."""

    models: list[ModelInfo]
    problems: dict[str, str]
    made_at: float


@dataclass
class _State:
    providers: dict[str, ChatProvider] | None = None
    listing: _Listing | None = None
    providers_lock: threading.Lock = field(default_factory=threading.Lock)
    # Its own lock: `resolve` runs in a worker's event loop and must not wait for a listing.
    listing_lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self) -> dict[str, ChatProvider]:
        with self.providers_lock:
            if self.providers is None:
                self.providers = _configured()
            return self.providers


_state = _State()


def providers() -> dict[str, ChatProvider]:
    """Give the configured providers by name, in order of preference; made at the first call."""
    return dict(_state.known())


@contextmanager
def override_providers(mapping: Mapping[str, ChatProvider]) -> Iterator[None]:
    """Put other providers in place for the duration of the block, in all threads of this process.

    The seam for tests and for tools that run against a scripted model. Blocks may be nested, not
    interleaved.
    """
    global _state
    previous, _state = _state, _State(providers=dict(mapping))
    try:
        yield
    finally:
        _state = previous


def list_models(refresh: bool = False) -> list[ModelInfo]:
    """List the models of all providers, in order of preference; may block for some seconds.

    `refresh` asks the providers again now.
    """
    return list(_listing(refresh).models)


def provider_problems(refresh: bool = False) -> dict[str, str]:
    """Give, by provider, why its models are not listed; providers without trouble are absent."""
    return dict(_listing(refresh).problems)


def refresh_stored() -> None:
    """Read the providers that people added; a change is listed at once. One query."""
    if stored.refresh():
        forget_listing()


def refresh_stored_for(handle: str) -> None:
    """As `refresh_stored`, but only when the configuration does not have the provider of the handle."""
    prefix = handle.partition("/")[0]
    if ALIASES.get(prefix, prefix) not in _state.known():
        refresh_stored()


def forget_listing() -> None:
    """Ask all providers anew at the next look."""
    _state.listing = None


def resolve(handle: str, owner_id: uuid.UUID | None = None) -> tuple[ChatProvider, str]:
    """Give the provider of a handle and the model's name there; asks nobody.

    `owner_id` says whose added providers count. A provider that is not there is looked for behind Bifrost,
    under the whole handle. Raises InvalidArgument.
    """
    prefix, slash, model = handle.partition("/")
    if not slash or not prefix or not model:
        raise InvalidArgument("The model handle should be in the format provider/model-name")
    known = providers()
    provider = known.get(ALIASES.get(prefix, prefix))
    if provider is not None:
        return provider, model
    added = stored.kept().get(prefix)
    if added is not None and owner_id is not None and added.owner_id == owner_id:
        return added.provider, model
    if "bifrost" in known:
        return known["bifrost"], handle
    raise InvalidArgument(
        f"There is no model provider {prefix!r} (handle {handle}). Choose one of "
        f"{', '.join(sorted(known))}, or configure it: see OPENAI_BASE_URL, ANTHROPIC_API_KEY and "
        "BIFROST_BASE_URL."
    )


def get_model(handle: str, owner_id: uuid.UUID | None = None) -> ModelInfo:
    """Give what is known of a model; may block for some seconds. A handle that is not in the kept
    listing is looked for once more.

    Raises InvalidArgument (see `resolve`), NotFound when its provider has no such model,
    Unavailable when the provider could not be asked.
    """
    provider, name = resolve(handle, owner_id)
    listing = _listing(max_age_seconds=HANDLE_SECONDS)
    found = _find(listing, provider.name, name)
    if found is None and time.monotonic() - listing.made_at > RECHECK_SECONDS:
        listing = _listing(refresh=True)
        found = _find(listing, provider.name, name)
    if found is not None:
        return found
    problem = listing.problems.get(provider.name)
    if problem:
        raise Unavailable(
            f"The models of {provider.name} cannot be listed, so {handle} cannot be used: {problem}"
        )
    handles = [m.handle for m in listing.models if m.owner_id in (None, owner_id)]
    raise NotFound(f"NOT_FOUND: Handle {handle} not found, must be one of {handles}")


def known_model(handle: str, owner_id: uuid.UUID | None = None) -> ModelInfo | None:
    """Give what the kept listing says of a model, whatever its age; never waits.

    For turns: an old or missing listing is renewed by a thread meanwhile.
    Raises InvalidArgument (see `resolve`).
    """
    provider, name = resolve(handle, owner_id)
    listing = _state.listing
    is_old = listing is None or time.monotonic() - listing.made_at > HANDLE_SECONDS
    if is_old and not _state.listing_lock.locked():
        threading.Thread(target=_listing, daemon=True, name="renew-models").start()
    return _find(listing, provider.name, name) if listing else None


def problems() -> dict[str, str]:
    """Give why providers that someone has set up cannot be used now: {provider: reason}; may block.

    Ollama at its usual address is only looked for, so its absence is no problem.
    """
    found = {n: p for n, p in _listing().problems.items() if n in _state.known()}
    if settings.CONFIG.sources.get("OLLAMA_BASE_URL", "default") == "default":
        found.pop("ollama", None)
    return found


def default_model() -> ModelInfo | None:
    """Give the model for agents created without one; None when there is no model at all.

    SOUVERAINE_DEFAULT_MODEL, else Ollama's OLLAMA_MODEL, else the first one, and a demonstration
    model only when there is nothing else. Raises as `get_model` when the configured one is not
    there.
    """
    configured = settings.CONFIG["SOUVERAINE_DEFAULT_MODEL"]
    if configured:
        return get_model(configured)
    listing = _listing()
    models = [model for model in listing.models if model.owner_id is None]
    preferred = _preferred_ollama(models, settings.CONFIG["OLLAMA_MODEL"])
    real = (model for model in models if not model.is_demonstration)
    return preferred or next(real, None) or next(iter(models), None)


def warm_up() -> None:
    """Load the streaming halves (LangChain; a second or two), so that the first turn need not.
    Worker only.
    """
    for path in _WARM_UPS:
        import_string(path)()


def _listing(refresh: bool = False, max_age_seconds: float = LISTING_SECONDS) -> _Listing:
    state = _state
    asked_at = time.monotonic()
    with state.listing_lock:
        kept = state.listing
        # A listing that another thread began while this one waited for the lock is as good as ours.
        oldest = asked_at if refresh else asked_at - max_age_seconds
        if kept is None or kept.made_at < oldest:
            kept = state.listing = _gather(state.known(), stored.kept())
        return kept


def _gather(
    configured: Mapping[str, ChatProvider], added: Mapping[str, stored.StoredProvider]
) -> _Listing:
    known = {**{name: entry.provider for name, entry in added.items()}, **configured}
    models: list[ModelInfo] = []
    problems: dict[str, str] = {}
    pool = ThreadPoolExecutor(max(1, len(known)), thread_name_prefix="list-models")
    futures = {name: pool.submit(provider.list_models) for name, provider in known.items()}
    wait(futures.values(), timeout=GATHER_SECONDS)
    pool.shutdown(wait=False)  # a thread that overran ends at its provider's own deadline
    for name, future in futures.items():
        owner_id = added[name].owner_id if name not in configured else None
        problem = _collect(future, models, owner_id)
        if problem:
            problems[name] = problem
    return _Listing(models, problems, time.monotonic())


def _collect(
    future: Future[list[ModelInfo]], models: list[ModelInfo], owner_id: uuid.UUID | None
) -> str:
    """Add a provider's models; give why there are none."""
    if not future.done():
        return f"no answer within {GATHER_SECONDS:g} s"
    try:
        models.extend(replace(m, owner_id=owner_id) if owner_id else m for m in future.result())
    except ProviderError as exc:
        return exc.provider_detail
    except Unavailable as exc:
        return exc.message
    return ""


def _find(listing: _Listing, provider_name: str, name: str) -> ModelInfo | None:
    wanted = (name, f"{name}:latest")  # Ollama lists `qwen3` as `qwen3:latest`
    own = [model for model in listing.models if model.provider_name == provider_name]
    return next((model for spelling in wanted for model in own if model.name == spelling), None)


def _preferred_ollama(models: list[ModelInfo], wanted: str) -> ModelInfo | None:
    own = {model.name: model for model in models if model.provider_name == "ollama"}
    exact = own.get(wanted) or own.get(f"{wanted}:latest")
    any_tag = (model for name, model in own.items() if wanted and name.startswith(f"{wanted}:"))
    return exact or next(any_tag, None)


def _configured() -> dict[str, ChatProvider]:
    config = settings.CONFIG
    silence = float(config["SOUVERAINE_MODEL_TIMEOUT_SECONDS"])
    window = int(config["SOUVERAINE_MODEL_CONTEXT_WINDOW"])
    found: dict[str, ChatProvider] = {}
    if config["OPENAI_BASE_URL"] or config["OPENAI_API_KEY"]:
        found["openai"] = OpenAIProvider(
            _openai(), timeout_seconds=silence, default_context_window=window
        )
    if config["BIFROST_BASE_URL"]:
        found["bifrost"] = BifrostProvider(
            _bifrost(),
            timeout_seconds=silence,
            default_context_window=window,
            fallbacks=config["BIFROST_FALLBACKS"],
        )
    if config["ANTHROPIC_BASE_URL"] or config["ANTHROPIC_API_KEY"]:
        found["anthropic"] = AnthropicProvider(_anthropic(), timeout_seconds=silence)
    ollama = Endpoint(
        "ollama",
        "Ollama",
        config["OLLAMA_BASE_URL"],
        "OLLAMA_BASE_URL",
        start_hint="Start it with `ollama serve`.",
    )
    found["ollama"] = OllamaProvider(ollama, timeout_seconds=silence, default_context_window=window)
    found["local"] = LocalProvider(config.data_dir, timeout_seconds=silence)
    return found


def _openai() -> Endpoint:
    config = settings.CONFIG
    return Endpoint(
        "openai",
        "OpenAI",
        _with_scheme(config["OPENAI_BASE_URL"]) or OPENAI_URL,
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
        api_key=config["OPENAI_API_KEY"],
    )


def _bifrost() -> Endpoint:
    config = settings.CONFIG
    has_virtual_key = config["BIFROST_VIRTUAL_KEY"] and not config["BIFROST_API_KEY"]
    return Endpoint(
        "bifrost",
        "Bifrost",
        join_url(normalise_base_url(config["BIFROST_BASE_URL"]), "v1"),
        "BIFROST_BASE_URL",
        "BIFROST_VIRTUAL_KEY" if has_virtual_key else "BIFROST_API_KEY",
        api_key=config["BIFROST_API_KEY"],
        virtual_key=config["BIFROST_VIRTUAL_KEY"],
    )


def _anthropic() -> Endpoint:
    config = settings.CONFIG
    return Endpoint(
        "anthropic",
        "Anthropic",
        join_url(normalise_base_url(config["ANTHROPIC_BASE_URL"]) or ANTHROPIC_URL, "v1"),
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_API_KEY",
        api_key=config["ANTHROPIC_API_KEY"],
        key_header="x-api-key",
        headers={"anthropic-version": ANTHROPIC_VERSION},
    )


def _with_scheme(url: str) -> str:
    """Complete `host:port/v1` to a URL; the path stays, since gateways have their own."""
    url = url.strip().rstrip("/")
    return f"http://{url}" if url and "://" not in url else url
