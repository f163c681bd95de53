"""HTTP as providers use it: short blocking questions with a total deadline, and streamed lines.

Only httpx, so that the web process can use it. Errors come out as `ProviderError`.
"""

from __future__ import annotations

import ipaddress
import json
import math
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx

from agents.providers import errors
from agents.providers.errors import CONNECT_TIMEOUT_SECONDS, Endpoint

ASK_CONNECT_SECONDS = 3.0
ASK_TOTAL_SECONDS = 5.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024  # gateways list some thousand models in about 4 MB
MAX_LINE_BYTES = 32 * 1024 * 1024


@cache
def ssl_context() -> ssl.SSLContext:
    """The one TLS context: making one costs 20 ms, more than a short model call's own CPU time."""
    return httpx.create_ssl_context()


def _uses_environment_proxy(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost" or host.endswith(".localhost")
    return not is_loopback  # a corporate proxy cannot reach this machine's own Ollama


def headers_of(endpoint: Endpoint) -> dict[str, str]:
    """Give the headers of every request to a provider: its keys and its fixed ones."""
    headers = dict(endpoint.headers)
    if endpoint.api_key:
        is_bearer = endpoint.key_header == "Authorization"
        headers[endpoint.key_header] = (
            f"Bearer {endpoint.api_key}" if is_bearer else endpoint.api_key
        )
    if endpoint.virtual_key:
        headers["x-bf-vk"] = endpoint.virtual_key
    return headers


def ask(
    endpoint: Endpoint,
    method: str,
    url: str,
    *,
    body: Mapping[str, Any] | None = None,
    total_seconds: float = ASK_TOTAL_SECONDS,
) -> Any:
    """Send one request and give the decoded JSON, within `total_seconds` even when bytes trickle
    in.

    Raises ProviderError for statuses from 400, a failed connection, a late, oversized or non-JSON
    answer.
    """
    deadline = time.monotonic() + total_seconds
    timeout = httpx.Timeout(total_seconds, connect=min(ASK_CONNECT_SECONDS, total_seconds))
    try:
        with (
            httpx.Client(
                timeout=timeout,
                verify=ssl_context(),
                trust_env=_uses_environment_proxy(url),
                follow_redirects=True,
            ) as client,
            client.stream(method, url, json=body, headers=headers_of(endpoint)) as response,
        ):
            content = bytearray()
            for part in response.iter_bytes():
                content += part
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("late")
                if len(content) > MAX_ANSWER_BYTES:
                    raise errors.not_understood(
                        endpoint, f"more than {MAX_ANSWER_BYTES} bytes from {url}"
                    )
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise errors.from_transport(
            endpoint, exc, timeout_seconds=total_seconds, started=False
        ) from exc
    except UnicodeError as exc:  # a redirect to a host that the resolver cannot spell
        raise errors.bad_request(endpoint, str(exc), "the URL is not valid") from exc
    return _decoded(endpoint, response.status_code, bytes(content))


def _decoded(endpoint: Endpoint, status: int, content: bytes) -> Any:
    if status >= 400:
        raise errors.from_status(endpoint, status, status_text(status, content))
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise errors.not_understood(endpoint, "the answer is not JSON") from None


def status_text(status: int, content: bytes) -> str:
    """Give `Error code: 500 - <body>`, as the official OpenAI client words it."""
    text = content.decode(errors="replace").strip()
    try:
        text = str(json.loads(text))
    except (ValueError, RecursionError):
        pass
    return f"Error code: {status} - {text}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Give the seconds of a Retry-After header; None when absent, a date, or no waiting time."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def async_client(url: str, silence_seconds: float) -> httpx.AsyncClient:
    """Make the client of one model call; leaving its `async with` closes the socket at once.

    One client per call costs 1.5 ms, and no connection outlives its call or its event loop.
    """
    timeout = httpx.Timeout(silence_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, silence_seconds))
    return httpx.AsyncClient(
        timeout=timeout,
        verify=ssl_context(),
        trust_env=_uses_environment_proxy(url),
        follow_redirects=True,
    )


async def raise_for_status(endpoint: Endpoint, response: httpx.Response) -> None:
    """Read the rest of a refused answer and raise it as ProviderError; return for statuses below 400."""
    if response.status_code < 400:
        return
    text = status_text(response.status_code, await response.aread())
    wait = retry_after(response.headers)
    raise errors.from_status(endpoint, response.status_code, text, retry_after_seconds=wait)


async def lines(endpoint: Endpoint, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Split a byte stream at LF only.

    httpx splits text also at U+2028, U+0085 and others, which stand unescaped in JSON strings.
    """
    rest = b""
    async for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield line.strip(b"\r")
        if len(rest) > MAX_LINE_BYTES:
            raise errors.not_understood(endpoint, f"a line of more than {MAX_LINE_BYTES} bytes")
    if rest:
        yield rest


def json_line(endpoint: Endpoint, text: bytes) -> dict[str, Any]:
    """Decode one streamed object. Raises ProviderError when it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        shown = text[:200].decode(errors="replace")
        raise errors.not_understood(endpoint, f"a line of the stream is no JSON object: {shown}")
    return value
