"""Django system checks: what is misconfigured, and how to mend it (`check`; ids in docs/deployment.md).

What stays on this machine is looked at before every command. Database and Redis are asked only when
Django passes `databases`, which `check` (ours does by default) and `migrate` do.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Warning
from django.db import DatabaseError, connections
from django.utils.module_loading import import_string

from souveraine.config import SETTINGS
from souveraine.lib import outbound
from souveraine.lib.program import command_line
from souveraine.supervisor.listen import is_loopback

HAS_USABLE_KEY = "agents.services.keys.has_usable_key"
SQLITE_BUSY_SECONDS = 20.0
REDIS_MINIMUM = (6, 2)
ASK_SECONDS = 1.0  # how long Redis may take to answer
BASE_URLS = ("OLLAMA_BASE_URL", "OPENAI_BASE_URL", "BIFROST_BASE_URL", "ANTHROPIC_BASE_URL")

Found = list[CheckMessage]


def register_all() -> None:
    """Hand the checks to Django; called once, when the app is ready."""
    for function in (*LOCAL, check_services):
        checks.register(function, "souveraine")


def local_findings() -> Found:
    """Return what the checks that ask nobody have found."""
    return [message for function in LOCAL for message in function()]


def check_data_dir(**kwargs: Any) -> Found:
    """E001–W003: the data directory is ours, writable, and keeps its secrets."""
    folder = Path(settings.DATA_DIR)
    place = next(path for path in (folder, *folder.parents) if path.exists())  # made at first start
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return [
            Error(
                f"The data directory {folder} cannot be written by this user (uid {os.getuid()}).",
                hint=f"Set SOUVERAINE_DATA_DIR to a folder you own, or: chown -R {os.getuid()} {folder}",
                id="souveraine.E001",
            )
        ]
    if place != folder:
        return []
    found: Found = []
    owner = folder.stat().st_uid
    if owner != os.getuid():
        found.append(
            Warning(
                f"The data directory {folder} belongs to uid {owner}, and this is uid {os.getuid()}.",
                hint="Run the server always as the same user: files of two users end in refusals.",
                id="souveraine.W002",
            )
        )
    return found + [_exposed(path) for path in _secret_files(folder) if _is_exposed(path)]


def _secret_files(folder: Path) -> list[Path]:
    """The files here that hold secrets; config.toml only when a secret is set in it."""
    toml = folder / "config.toml"
    sources = settings.CONFIG.sources
    names = [s.name for s in SETTINGS if s.secret and sources.get(s.name, "").startswith(str(toml))]
    return [folder / "secret_key", folder / "api_key", *([toml] if names else [])]


def _is_exposed(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    except OSError:
        return False  # absent, or hidden from us as well


def _exposed(path: Path) -> CheckMessage:
    return Warning(
        f"{path} can be read by other users of this machine.",
        hint=f"chmod 600 {path}",
        id="souveraine.W003",
    )


def check_programs(**kwargs: Any) -> Found:
    """W004: programs that parts of the server call."""
    if shutil.which("git"):
        return []
    return [
        Warning(
            "git is not on PATH: memory works, but clone, fetch and push of it do not.",
            hint="Install git (Debian: apt install git), or add its folder to PATH.",
            id="souveraine.W004",
        )
    ]


def check_names(**kwargs: Any) -> Found:
    """W005: settings that nobody knows, most often a typing error."""
    return [
        Warning(
            text,
            hint="All names are in docs/configuration.md; remove or correct this one.",
            id="souveraine.W005",
        )
        for text in settings.CONFIG.warnings
    ]


def check_deadlines(**kwargs: Any) -> Found:
    """E006–W009: step < tool < turn < the broker's redelivery; lease above the busy time-out."""
    config = settings.CONFIG
    turn = config["SOUVERAINE_TURN_TIMEOUT_SECONDS"]
    tool = config["SOUVERAINE_TOOL_TIMEOUT_SECONDS"]
    model = config["SOUVERAINE_MODEL_TIMEOUT_SECONDS"]
    lease = config["SOUVERAINE_LEASE_SECONDS"]
    visibility = settings.CELERY_BROKER_TRANSPORT_OPTIONS["visibility_timeout"]
    is_sqlite = connections["default"].vendor == "sqlite"
    rules: list[tuple[bool, Callable[..., CheckMessage], str, str, str]] = [
        (
            tool >= turn,
            Error,
            f"One tool call may take {tool:g} s, but the whole turn only {turn:g} s.",
            f"Set SOUVERAINE_TOOL_TIMEOUT_SECONDS below {turn:g}, or the turn's limit above it.",
            "souveraine.E006",
        ),
        (
            visibility <= turn,
            Error,
            f"The broker redelivers a task after {visibility:g} s, but a turn may take {turn:g} s.",
            "Set visibility_timeout in CELERY_BROKER_TRANSPORT_OPTIONS above the turn's limit.",
            "souveraine.E007",
        ),
        (
            is_sqlite and lease <= SQLITE_BUSY_SECONDS,
            Warning,
            f"A lease lasts {lease:g} s, but SQLite may let a writer wait {SQLITE_BUSY_SECONDS:g} s:"
            " a live worker can lose its turns.",
            f"Set SOUVERAINE_LEASE_SECONDS above {SQLITE_BUSY_SECONDS:g} (default 30).",
            "souveraine.W008",
        ),
        (
            model >= turn,
            Warning,
            f"A model may be silent for {model:g} s, but the whole turn has only {turn:g} s.",
            f"Set SOUVERAINE_MODEL_TIMEOUT_SECONDS below {turn:g}, or the turn's limit above it.",
            "souveraine.W009",
        ),
    ]
    return [kind(text, hint=hint, id=name) for broken, kind, text, hint, name in rules if broken]


def check_urls(**kwargs: Any) -> Found:
    """E010, W016: addresses of model servers that cannot be addresses, or lack the scheme."""
    found: Found = []
    for name in BASE_URLS:
        url = str(settings.CONFIG.values.get(name, ""))
        path = "/v1" if name == "OPENAI_BASE_URL" else ""
        hint = f"Write it like http://127.0.0.1:11434{path} (see {name} in docs/configuration.md)."
        if fault := url_fault(url):
            found.append(Error(f"{name} is {url!r}: {fault}.", hint=hint, id="souveraine.E010"))
        elif url and "://" not in url:
            text = f"{name} is {url!r}, without a scheme; http:// is assumed."
            found.append(Warning(text, hint=hint, id="souveraine.W016"))
    return found


def check_outbound(**kwargs: Any) -> Found:
    """E017–E018: what callbacks may reach, and what signs them, can be read."""
    found: Found = []
    try:
        outbound.allowed()
    except ValueError as exc:
        found.append(
            Error(
                f"SOUVERAINE_OUTBOUND_ALLOW: {exc}.",
                hint="Write networks (10.0.0.0/8), addresses or host names, separated by commas.",
                id="souveraine.E017",
            )
        )
    secret: str = settings.CONFIG["SOUVERAINE_CALLBACK_SECRET"]
    try:
        if secret.startswith("whsec_"):
            base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        found.append(
            Error(
                "SOUVERAINE_CALLBACK_SECRET begins with whsec_, and what follows is not base64.",
                hint="Correct it, or unset it: the server then has a secret of its own.",
                id="souveraine.E018",
            )
        )
    return found


def url_fault(url: str) -> str:
    """Say what is wrong with a server's base URL; empty for a good one and for none."""
    if not url:
        return ""
    if re.search(r"\s", url):
        return "there is a space in it"
    if re.match(r"[a-z]+:/(?!/)", url, re.IGNORECASE):
        return "after the scheme and the colon come two slashes"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        return "its port or address is not a number in range"
    if parts.scheme not in ("http", "https"):
        return f"{parts.scheme!r} is neither http nor https"
    host = parts.hostname or ""
    if not host or host in ("http", "https") or port == 0:
        return "the part after the scheme is no host name"
    return "a query (?…) does not belong here" if parts.query else ""


def check_services(databases: Any = None, **kwargs: Any) -> Found:
    """E011–W015: database, keys and Redis answer. Asks over the network, so only on demand."""
    if not databases:
        return []
    found = _ask_database()
    if not found:
        found += _ask_for_key()
    return found + (_ask_redis() if settings.REDIS_URL else [])


def _ask_database() -> Found:
    try:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as exc:
        return [
            Error(
                f"The database does not answer: {str(exc).strip()}",
                hint="Start it, or correct DATABASE_URL (empty: SQLite in the data directory).",
                id="souveraine.E011",
            )
        ]
    return []


def _ask_for_key() -> Found:
    host = settings.CONFIG["SOUVERAINE_HOST"]
    if is_loopback(host):
        return []
    has_usable_key: Callable[[], bool] = import_string(HAS_USABLE_KEY)
    try:
        if has_usable_key():
            return []
    except DatabaseError:
        pass  # no tables before the first start, hence no key either
    return [
        Error(
            f"SOUVERAINE_HOST is {host}, which other machines can reach, and there is no API key.",
            hint=f"Make one: {command_line('createkey')}. Or set SOUVERAINE_HOST=127.0.0.1.",
            id="souveraine.E012",
        )
    ]


def _ask_redis() -> Found:
    try:
        client = redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=ASK_SECONDS, socket_connect_timeout=ASK_SECONDS
        )
        with client:
            info: dict[str, Any] = client.info()
    except (redis.RedisError, ValueError, OSError) as exc:
        return [
            Error(
                f"The Redis of REDIS_URL does not answer: {exc}",
                hint="Start it, correct REDIS_URL, or unset it: `serve` has a private one.",
                id="souveraine.E013",
            )
        ]
    return redis_faults(info)


def redis_faults(info: dict[str, Any]) -> Found:
    """Judge the answer to INFO: version and what happens when the memory is full."""
    found: Found = []
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < REDIS_MINIMUM:
        found.append(
            Error(
                f"Redis {version} is too old.",
                hint="Use 6.2 or newer, or unset REDIS_URL: `serve` has a private one.",
                id="souveraine.E014",
            )
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and info.get("maxmemory"):
        found.append(
            Warning(
                f"This Redis evicts keys when its memory is full (maxmemory-policy {policy}): "
                "queued work and streams would vanish without a word.",
                hint="Set maxmemory-policy noeviction in its configuration.",
                id="souveraine.W015",
            )
        )
    return found


LOCAL: tuple[Callable[..., Found], ...] = (
    check_data_dir,
    check_programs,
    check_names,
    check_deadlines,
    check_urls,
    check_outbound,
)
