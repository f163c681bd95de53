"""The one mapping from what a provider's connection did to `ProviderError` (contract letta-api
§1.4).

Every text names the provider and its URL and says what to do; keys never appear in one. The leading
`CODE: …` phrases are those of the old server, since clients show and match them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import httpx

from souveraine.errors import ProviderError

MAX_DETAIL_CHARS = 2000  # proxies answer with whole HTML pages
CONNECT_TIMEOUT_SECONDS = 10.0

_OVERFLOW = re.compile(
    r"context[ _](length|window|size)|maximum context|exceed_context|exceed context limit"
    r"|prompt is too long|too many tokens|input (length|tokens) exceed",
    re.IGNORECASE,
)
# A quota that waiting does not refill; plain "quota exceeded" is also said of limits per minute.
_NO_CREDIT = re.compile(
    r"insufficient[_ ](quota|funds|balance)|insufficient credits?|billing|out of credits?"
    r"|credit balance|exceeded your current quota|budget[_ ]exceeded",
    re.IGNORECASE,
)
_UPSTREAM_TIMEOUT = re.compile(
    r"upstream[^.]{0,40}(timeout|timed out)|deadline[_ ]exceeded|timeout_error", re.IGNORECASE
)
REPEATABLE_TIMEOUT = "is_repeatable_timeout"  # in an error's data: the next try would end alike


@dataclass(frozen=True)
class Endpoint:
    """A provider as errors name it, and where it is. `api_key` may be empty.

    `key_header` carries the key; `virtual_key` goes beside it as Bifrost's `x-bf-vk`. `headers` are
    sent with every request and hold no secrets.
    """

    name: str
    label: str
    url: str
    url_setting: str = ""
    key_setting: str = ""
    start_hint: str = ""
    api_key: str = field(default="", repr=False)
    virtual_key: str = field(default="", repr=False)
    key_header: str = "Authorization"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown_url(self) -> str:
        """The URL without user name and password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def where(self) -> str:
        return f"{self.name} at {self.shown_url}"

    def redact(self, text: str) -> str:
        """Take the keys and URL credentials out of a text, and cut it to MAX_DETAIL_CHARS."""
        text = text.replace(self.url, self.shown_url)
        for key in (self.api_key, self.virtual_key):
            if len(key) >= 4:  # shorter ones are placeholders and would hit innocent words
                text = text.replace(key, "***")
        return text if len(text) <= MAX_DETAIL_CHARS else text[:MAX_DETAIL_CHARS] + " …"


def _build(
    endpoint: Endpoint, error_type: str, what: str, advice: str, *, is_transient: bool = False
) -> ProviderError:
    what = endpoint.redact(what).rstrip()
    tail = f" (provider {endpoint.where}{'; ' + advice if advice else ''})"
    return ProviderError(error_type, what + tail, is_transient=is_transient)


def _check(setting: str, otherwise: str) -> str:
    return f"check {setting}" if setting else otherwise


def from_status(
    endpoint: Endpoint, status: int, text: str, *, retry_after_seconds: float | None = None
) -> ProviderError:
    """Map an HTTP error status; `text` is `Error code: <status> - <body>`."""
    error = _from_status(endpoint, status, text)
    if retry_after_seconds is not None:
        error.data["retry_after_seconds"] = retry_after_seconds
    return error


def _from_status(endpoint: Endpoint, status: int, text: str) -> ProviderError:
    label = endpoint.label
    if status in (401, 403):
        advice = _check(endpoint.key_setting, "check its access rules")
        return _build(
            endpoint,
            "llm_authentication",
            f"UNAUTHENTICATED: Authentication failed with {label}: {text}",
            advice,
        )
    if status == 402 or (status in (400, 429) and _NO_CREDIT.search(text)):
        return _build(
            endpoint,
            "llm_insufficient_credits",
            f"PAYMENT_REQUIRED: Insufficient credits with {label}: {text}",
            "top up the account or choose another model",
        )
    if status == 429:
        return _build(
            endpoint,
            "llm_rate_limit",
            f"RATE_LIMIT_EXCEEDED: Rate limited by {label}: {text}",
            "wait a little and send again",
            is_transient=True,
        )
    if status in (408, 504):
        error = _build(
            endpoint,
            "llm_timeout",
            f"DEADLINE_EXCEEDED: {label} timed out: {text}",
            "send again, or choose a faster model",
            is_transient=True,
        )
        return _repeatable(error) if status == 504 else error
    if _OVERFLOW.search(text) and status < 502:
        return context_overflow(endpoint, text)
    if status < 500:
        return bad_request(endpoint, text, _bad_request_advice(status))
    error = _build(
        endpoint,
        "llm_error",
        f"INTERNAL_SERVER_ERROR: {label} API error: {text}",
        "look into its log, then send again",
        is_transient=True,
    )
    return _repeatable(error) if _UPSTREAM_TIMEOUT.search(text) else error


def _repeatable(error: ProviderError) -> ProviderError:
    """Mark a time-out of the model behind the provider: it took its whole time, and will again."""
    error.data[REPEATABLE_TIMEOUT] = True
    return error


def _bad_request_advice(status: int) -> str:
    if status == 404:
        return "the model or the URL does not exist there: choose a model from /v1/models/"
    return "check the agent's model settings"


def bad_request(endpoint: Endpoint, text: str, advice: str) -> ProviderError:
    """The provider refuses the request; the same one again would fail again."""
    is_named = endpoint.label in ("Ollama", "Anthropic")
    kind = endpoint.label if is_named else "OpenAI-compatible endpoint"
    return _build(
        endpoint, "llm_bad_request", f"INVALID_ARGUMENT: Bad request to {kind}: {text}", advice
    )


def context_overflow(endpoint: Endpoint, text: str) -> ProviderError:
    """The prompt does not fit; the turn engine answers this by compaction."""
    return _build(
        endpoint,
        "context_window_overflow",
        f"INVALID_ARGUMENT: The prompt is larger than the model's context window: {text}",
        "lower the agent's context window limit or choose a model with a larger one",
    )


def from_transport(
    endpoint: Endpoint,
    error: httpx.HTTPError | httpx.InvalidURL,
    *,
    timeout_seconds: float,
    started: bool,
) -> ProviderError:
    """Map a failed connection. `started`: some of the answer had been received."""
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return bad_request(endpoint, reason, _check(endpoint.url_setting, "the URL is not valid"))
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return _build(
            endpoint,
            "llm_timeout",
            f"DEADLINE_EXCEEDED: Connection error: {endpoint.where} took no connection within "
            f"{CONNECT_TIMEOUT_SECONDS:g} s.",
            _check(endpoint.url_setting, "see whether it is running"),
            is_transient=True,
        )
    if isinstance(error, httpx.TimeoutException):
        silence = _build(
            endpoint,
            "llm_timeout",
            f"DEADLINE_EXCEEDED: {endpoint.label} sent nothing for {timeout_seconds:g} s.",
            "send again, choose a faster model, or raise SOUVERAINE_MODEL_TIMEOUT_SECONDS",
            is_transient=True,
        )
        return _repeatable(silence)
    if isinstance(error, httpx.ConnectError):
        hints = (
            endpoint.start_hint,
            f"Check {endpoint.url_setting}." if endpoint.url_setting else "",
        )
        what = f"Connection error: cannot reach {endpoint.where}: {reason}. Is it running?"
        return ProviderError(
            "llm_error", " ".join(filter(None, (endpoint.redact(what), *hints))), is_transient=True
        )
    return cut(endpoint, reason, started=started)


def cut(endpoint: Endpoint, reason: str, *, started: bool = True) -> ProviderError:
    """The connection broke before the answer was complete."""
    when = f"during {endpoint.label} streaming" if started else f"with {endpoint.label}"
    return _build(
        endpoint,
        "llm_error",
        f"INTERNAL_SERVER_ERROR: Connection error {when}: {reason}",
        "it may have been stopped; send again",
        is_transient=True,
    )


def from_error_frame(endpoint: Endpoint, message: str, code: object = None) -> ProviderError:
    """Map an error that the provider sent inside a stream; `code` may be an HTTP status."""
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdigit()) else 0
    if 400 <= status < 600:
        return from_status(endpoint, status, message)
    if _OVERFLOW.search(message):
        return context_overflow(endpoint, message)
    return _build(
        endpoint,
        "llm_error",
        f"INTERNAL_SERVER_ERROR: {endpoint.label} API error: {message}",
        "look into its log, then send again",
        is_transient=True,
    )


def not_understood(endpoint: Endpoint, what: str) -> ProviderError:
    """The provider answered with something that is not its protocol."""
    return _build(
        endpoint,
        "llm_error",
        f"INTERNAL_SERVER_ERROR: {endpoint.label} API error: {what}",
        _check(endpoint.url_setting, "see whether the URL is that of a model server"),
    )


@contextmanager
def understanding(endpoint: Endpoint) -> Iterator[None]:
    """Turn what foreign data of an unexpected shape raises in the block into a ProviderError."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise not_understood(endpoint, f"the answer has an unexpected form: {exc!r}") from exc


def local_failure(
    endpoint: Endpoint, what: str, advice: str, *, is_transient: bool = False
) -> ProviderError:
    """The engine that this server runs itself could not be started or used."""
    return _build(
        endpoint, "llm_error", f"INTERNAL_SERVER_ERROR: {what}", advice, is_transient=is_transient
    )
