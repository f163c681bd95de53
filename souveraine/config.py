"""The one place where configuration is read: environment first, then `config.toml`, then defaults.

Every setting is a row of `SETTINGS`. Called by `souveraine.settings`, the supervisor and `check`.
Secrets may be given as `NAME_FILE` (a path); a missing file is an error, never an empty secret.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import environ

PREFIX = "SOUVERAINE_"


class ConfigError(Exception):
    """The configuration cannot be used; the text names the place and the fix."""


@dataclass(frozen=True)
class Setting:
    """One setting: environment name, `section.key` in config.toml, type, default, meaning."""

    name: str
    key: str
    kind: str  # str | int | float | bool | list | path
    default: Any
    doc: str
    aliases: tuple[str, ...] = ()
    secret: bool = False
    minimum: float | None = None
    maximum: float | None = None


S = Setting
SETTINGS: tuple[Setting, ...] = (
    S(
        "SOUVERAINE_DATA_DIR",
        "server.data_dir",
        "path",
        "~/.souveraine/server",
        "Directory of all state",
        ("LETTA_DIR",),
    ),
    S("SOUVERAINE_HOST", "server.host", "str", "127.0.0.1", "Address to bind", ("HOST",)),
    S(
        "SOUVERAINE_PORT",
        "server.port",
        "int",
        8283,
        "TCP port",
        ("PORT",),
        minimum=1,
        maximum=65535,
    ),
    S(
        "SOUVERAINE_DEFAULT_MODEL",
        "models.default",
        "str",
        "",
        "Model handle for agents created without one; empty = first model found",
    ),
    S(
        "SOUVERAINE_EMBEDDING_MODEL",
        "models.embedding",
        "str",
        "",
        "Embedding model handle: messages and archives are searched by meaning too; empty = by words only",
    ),
    S(
        "SOUVERAINE_API_KEY",
        "server.api_key",
        "str",
        "",
        "Bootstrap key with all scopes, owned by the first user",
        ("LETTA_SERVER_PASSWORD",),
        secret=True,
    ),
    S(
        "SOUVERAINE_SECRET_KEY",
        "server.secret_key",
        "str",
        "",
        "Signs sessions and encrypts secrets; generated into the data directory when empty",
        ("DJANGO_SECRET_KEY", "SECRET_KEY"),
        secret=True,
    ),
    S(
        "DATABASE_URL",
        "server.database_url",
        "str",
        "",
        "Database; empty = SQLite in the data directory",
        ("LETTA_PG_URI",),
        secret=True,
    ),
    S(
        "REDIS_URL",
        "server.redis_url",
        "str",
        "",
        "Redis; empty = a private child process on a unix socket",
        secret=True,
    ),
    S(
        "SOUVERAINE_REDIS_SERVER",
        "server.redis_server",
        "str",
        "",
        "Path of a redis-server binary for the private child, or `bundled`",
    ),
    S(
        "OLLAMA_BASE_URL",
        "ollama.base_url",
        "str",
        "http://127.0.0.1:11434",
        "Ollama server",
        ("OLLAMA_HOST", "OLLAMA_API_BASE"),
    ),
    S("OLLAMA_MODEL", "ollama.model", "str", "qwen3", "Model preferred when Ollama has it"),
    S(
        "OPENAI_BASE_URL",
        "openai.base_url",
        "str",
        "",
        "Any OpenAI-compatible server, with /v1; empty = OpenAI itself when a key is set",
        ("OPENAI_API_BASE",),
    ),
    S("OPENAI_API_KEY", "openai.api_key", "str", "", "Bearer key for it", secret=True),
    S(
        "BIFROST_BASE_URL",
        "bifrost.base_url",
        "str",
        "",
        "Bifrost or other OpenAI-compatible gateway",
    ),
    S("BIFROST_API_KEY", "bifrost.api_key", "str", "", "Bearer key for the gateway", secret=True),
    S(
        "BIFROST_VIRTUAL_KEY",
        "bifrost.virtual_key",
        "str",
        "",
        "Virtual key for the gateway, sent as x-bf-vk",
        secret=True,
    ),
    S(
        "BIFROST_FALLBACKS",
        "bifrost.fallbacks",
        "list",
        [],
        "Models of the gateway to try, in order, when the chosen one stays unavailable",
    ),
    S("ANTHROPIC_API_KEY", "anthropic.api_key", "str", "", "Key for Anthropic", secret=True),
    S(
        "ANTHROPIC_BASE_URL",
        "anthropic.base_url",
        "str",
        "",
        "Gateway with Anthropic's protocol; empty = Anthropic itself when a key is set",
    ),
    S(
        "SOUVERAINE_DEMO_MODEL",
        "models.demo",
        "bool",
        True,
        "Fetch the demonstration model when no other model is found",
    ),
    S(
        "SOUVERAINE_MODEL_CONTEXT_WINDOW",
        "models.context_window",
        "int",
        32768,
        "Context window in tokens assumed for models whose provider does not tell",
        minimum=1024,
    ),
    S(
        "SOUVERAINE_MODEL_TIMEOUT_SECONDS",
        "models.timeout_seconds",
        "float",
        120.0,
        "Longest silence of a model provider before the call fails",
        minimum=1,
    ),
    S(
        "SOUVERAINE_MODEL_RETRIES",
        "models.retries",
        "int",
        2,
        "Retries of a model call after a transient error, before any token",
        minimum=0,
        maximum=10,
    ),
    S("CONFIG_DIR", "server.config_dir", "path", "", "Folder with mcp.json and system.md"),
    S(
        "AGENT_RECURSION_LIMIT",
        "turns.recursion_limit",
        "int",
        25,
        "Graph steps of an /api run",
        minimum=2,
    ),
    S(
        "SHUTDOWN_TIMEOUT",
        "server.shutdown_timeout",
        "float",
        30.0,
        "Seconds that running turns get to finish at shutdown",
        minimum=0,
    ),
    S(
        "SOUVERAINE_TURN_TIMEOUT_SECONDS",
        "turns.timeout_seconds",
        "float",
        1800.0,
        "Longest duration of one turn",
        minimum=1,
    ),
    S(
        "SOUVERAINE_TOOL_TIMEOUT_SECONDS",
        "turns.tool_timeout_seconds",
        "float",
        120.0,
        "Longest duration of one tool call",
        minimum=1,
    ),
    S(
        "SOUVERAINE_COMPACTION_TIMEOUT_SECONDS",
        "turns.compaction_timeout_seconds",
        "float",
        120.0,
        "How long a model may take to summarise older messages",
        minimum=1,
    ),
    S(
        "SOUVERAINE_APPROVAL_TIMEOUT_SECONDS",
        "turns.approval_timeout_seconds",
        "float",
        86_400.0,
        "How long a tool call waits for an approval or a client's return before it is denied",
        minimum=1,
    ),
    S(
        "SOUVERAINE_LEASE_SECONDS",
        "turns.lease_seconds",
        "float",
        30.0,
        "Lease of a run; longer than the database's busy timeout of 20 s",
        minimum=2,
    ),
    S(
        "SOUVERAINE_QUEUE_LIMIT",
        "turns.queue_limit",
        "int",
        20,
        "Messages that may wait for their turn in one conversation",
        minimum=0,
        maximum=1000,
    ),
    S(
        "SOUVERAINE_WORKER_CONCURRENCY",
        "turns.concurrency",
        "int",
        256,
        "Turns at once in one worker",
        minimum=1,
    ),
    S(
        "SOUVERAINE_MAX_REQUEST_BYTES",
        "server.max_request_bytes",
        "int",
        20 * 1024 * 1024,
        "Largest request body in bytes",
        minimum=1024,
    ),
    S(
        "SOUVERAINE_MAX_IMAGE_BYTES",
        "server.max_image_bytes",
        "int",
        5 * 1024 * 1024,
        "Largest image of a message, in bytes",
        minimum=1024,
    ),
    S(
        "SOUVERAINE_MAX_IMPORT_BYTES",
        "server.max_import_bytes",
        "int",
        200 * 1024 * 1024,
        "Largest agent file that can be imported, in bytes",
        minimum=1024,
    ),
    S(
        "SOUVERAINE_PING_SECONDS",
        "server.ping_seconds",
        "float",
        15.0,
        "Keep-alive interval of a silent stream",
        minimum=0.05,
        maximum=60,
    ),
    S(
        "SOUVERAINE_ALLOWED_HOSTS",
        "server.allowed_hosts",
        "list",
        [],
        "Host names by which keyless loopback clients may call, beside localhost",
    ),
    S(
        "SOUVERAINE_CORS_ORIGINS",
        "server.cors_origins",
        "list",
        [],
        "Web origins whose pages may call the API",
    ),
    S(
        "SOUVERAINE_OUTBOUND_ALLOW",
        "server.outbound_allow",
        "list",
        [],
        "Networks and host names that callbacks may reach although they are not public",
    ),
    S(
        "SOUVERAINE_CALLBACK_SECRET",
        "server.callback_secret",
        "str",
        "",
        "Signs callbacks; empty = a secret of this server, shown by `callbacksecret`",
        secret=True,
    ),
    S("SOUVERAINE_LOG_LEVEL", "server.log_level", "str", "INFO", "Log level", ("LOG_LEVEL",)),
)
_BY_NAME = {s.name: s for s in SETTINGS}
_BY_KEY = {s.key: s for s in SETTINGS}


@dataclass
class Config:
    """Resolved values by environment name, and the warnings found while reading."""

    values: dict[str, Any]
    sources: dict[str, str]
    warnings: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def data_dir(self) -> Path:
        return Path(self.values["SOUVERAINE_DATA_DIR"])


KIND_NAMES = {
    "str": "a text in quotes",
    "int": "a whole number",
    "float": "a number",
    "path": "a path in quotes",
    "list": "a list of texts",
}


def _cast(kind: str, raw: Any, where: str) -> Any:
    casts: dict[str, Callable[[str], Any]] = {
        "str": str,
        "int": int,
        "float": float,
        "path": lambda v: str(Path(v).expanduser()) if v else "",
        "list": lambda v: [part.strip() for part in v.split(",") if part.strip()],
    }
    if kind == "list" and isinstance(raw, list):
        return [str(v) for v in raw]
    if kind == "bool":
        text = str(raw).strip().lower()
        if text in environ.Env.BOOLEAN_TRUE_STRINGS:
            return True
        if text in ("false", "off", "no", "n", "0", ""):
            return False
        raise ConfigError(f"{where}: {raw!r} is not a yes/no value. Use on or off.")
    if isinstance(raw, bool) or (kind == "str" and not isinstance(raw, str)):
        raise ConfigError(f"{where}: {raw!r} is not {KIND_NAMES[kind]}.")
    try:
        return casts[kind](raw if not isinstance(raw, str) else raw.strip())
    except (TypeError, ValueError, AttributeError):
        raise ConfigError(f"{where}: {raw!r} is not {KIND_NAMES[kind]}.") from None


def _checked(setting: Setting, value: Any, where: str) -> Any:
    if setting.minimum is not None and value < setting.minimum:
        raise ConfigError(f"{where}: {value} is below the minimum {setting.minimum:g}.")
    if setting.maximum is not None and value > setting.maximum:
        raise ConfigError(f"{where}: {value} is above the maximum {setting.maximum:g}.")
    return value


def _from_environment(setting: Setting, env: environ.Env) -> tuple[Any, str] | None:
    for name in (setting.name, *setting.aliases):
        if setting.secret and f"{name}_FILE" in env.ENVIRON:
            path = Path(env.ENVIRON[f"{name}_FILE"])
            try:
                return path.read_text().strip(), f"{name}_FILE"
            except OSError as exc:
                raise ConfigError(f"{name}_FILE: cannot read {path}: {exc.strerror}.") from None
        if name in env.ENVIRON and (env.ENVIRON[name] != "" or setting.kind == "str"):
            return env.ENVIRON[name], name
    return None


def _line_of(text: str, key: str) -> int:
    name = key.split(".")[-1]
    for number, line in enumerate(text.splitlines(), 1):
        if line.split("=")[0].strip() == name or line.strip().startswith(f"[{key}"):
            return number
    return 0


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Read `config.toml` as {"section.key": value} and its text; a missing file is empty.

    Raises ConfigError with path and line for bad TOML and for unknown keys.
    """
    if not path.exists():
        return {}, ""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path}: {exc}. Correct the file and start again.") from None
    flat: dict[str, Any] = {}
    for section, body in document.items():
        if not isinstance(body, dict):
            raise ConfigError(
                f"{path}, line {_line_of(text, section)}: {section!r} stands outside a section; "
                f"put it under one, e.g. [server]."
            )
        for key, value in body.items():
            flat[f"{section}.{key}"] = value
    for key in flat:
        if key not in _BY_KEY:
            near = difflib.get_close_matches(key, _BY_KEY, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{path}, line {_line_of(text, key)}: unknown key {key!r}.{hint}")
    return flat, text


def normalise_base_url(url: str) -> str:
    """Give a server URL without path: adds the scheme, strips `/`, `/v1`, `/api`; 0.0.0.0 → 127.0.0.1."""
    url = url.strip().rstrip("/")
    if not url:
        return ""
    if "://" not in url:
        url = f"http://{url}"
    for suffix in ("/v1", "/api"):
        url = url.removesuffix(suffix)
    return url.replace("//0.0.0.0", "//127.0.0.1").rstrip("/")


def _unknown_names(environment: Mapping[str, str]) -> list[str]:
    known = {n for s in SETTINGS for n in (s.name, *s.aliases)} | {
        f"{s.name}_FILE" for s in SETTINGS if s.secret
    }
    out = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            out.append(
                f"Unknown setting {name} is ignored."
                + (f" Did you mean {near[0]}?" if near else "")
            )
    return out


def load(environment: Mapping[str, str] | None = None) -> Config:
    """Resolve all settings; the environment wins over `config.toml` in the data directory.

    Raises ConfigError with the name (or file, line and key) and the reason.
    """
    env = environ.Env()
    env.ENVIRON = dict(os.environ if environment is None else environment)
    data_setting = _BY_NAME["SOUVERAINE_DATA_DIR"]
    found = _from_environment(data_setting, env)
    data_dir = Path(_cast("path", found[0] if found else data_setting.default, data_setting.name))
    toml_path = data_dir / "config.toml"
    file_values, text = read_toml(toml_path)
    config = Config({}, {}, _unknown_names(env.ENVIRON))
    for setting in SETTINGS:
        found = _from_environment(setting, env)
        if found is not None:
            raw, where = found
        elif setting.key in file_values:
            raw = file_values[setting.key]
            where = f"{toml_path}, line {_line_of(text, setting.key)}, {setting.key}"
        else:
            raw, where = setting.default, "default"
        config.values[setting.name] = _checked(setting, _cast(setting.kind, raw, where), where)
        config.sources[setting.name] = where
    config.values["SOUVERAINE_DATA_DIR"] = str(data_dir.absolute())
    config.values["OLLAMA_BASE_URL"] = normalise_base_url(config["OLLAMA_BASE_URL"])
    return config
