"""Django settings, all derived from `souveraine.config` (environment, then config.toml)."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any

import environ

from souveraine import config as config_module

try:
    CONFIG = config_module.load()
except config_module.ConfigError as exc:
    sys.stderr.write(f"Configuration error: {exc}\n")
    raise SystemExit(2) from None

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = CONFIG.data_dir


def _secret_key() -> str:
    """Return the configured key, or the one kept (mode 0600) in the data directory, made when absent."""
    if CONFIG["SOUVERAINE_SECRET_KEY"]:
        return str(CONFIG["SOUVERAINE_SECRET_KEY"])
    path = DATA_DIR / "secret_key"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    try:
        DATA_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"secret_key.{secrets.token_hex(4)}")
        temporary.touch(mode=0o600)
        temporary.write_text(secrets.token_urlsafe(48))
        try:
            path.hardlink_to(temporary)  # the first of two starting processes wins
        except FileExistsError:
            pass
        temporary.unlink()
        return path.read_text().strip()
    except OSError as exc:
        sys.stderr.write(
            f"Configuration error: cannot write {path}: {exc.strerror}. "
            "Set SOUVERAINE_DATA_DIR to a folder you own.\n"
        )
        raise SystemExit(2) from None


SECRET_KEY = _secret_key()
DEBUG = False
ALLOWED_HOSTS = [
    "*"
]  # the Host rule is `souveraine.api.guard`: keyless needs a known host, a key does not
ROOT_URLCONF = "souveraine.urls"
ASGI_APPLICATION = "souveraine.asgi.application"
APPEND_SLASH = False  # a redirect loses POST bodies; both forms are routed
AUTH_USER_MODEL = "agents.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
    )
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "corsheaders",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "souveraine",
    "memfs",
    "agents",
    "conversations",
    "consciousness",
]

MIDDLEWARE = [
    "souveraine.api.guard.request_guard",
    "corsheaders.middleware.CorsMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def _database() -> dict[str, Any]:
    if CONFIG["DATABASE_URL"]:
        parsed: dict[str, Any] = environ.Env.db_url_config(CONFIG["DATABASE_URL"])
        parsed["CONN_HEALTH_CHECKS"] = True
        parsed["CONN_MAX_AGE"] = None
        return parsed
    return {
        "ENGINE": "souveraine.lib.sqlite",
        "NAME": DATA_DIR / "database.sqlite3",
        "CONN_MAX_AGE": None,  # threads come from pools: each keeps its connection
        "OPTIONS": {
            # Architecture §14: DEFERRED transactions gave lock errors by the hundred thousand.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA foreign_keys=ON;",
        },
    }


DATABASES = {"default": _database()}
if "sqlite" in DATABASES["default"]["ENGINE"]:
    # Threads and Celery workers need a real file also in tests: shared memory blocks second threads.
    DATABASES["default"]["TEST"] = {"NAME": DATA_DIR / "test-database.sqlite3"}

REDIS_URL = CONFIG["REDIS_URL"]
CELERY_BROKER_URL = (
    REDIS_URL.replace("unix://", "redis+socket://") if REDIS_URL else "redis+socket:///nonexistent"
)
CELERY_TASK_IGNORE_RESULT = True
CELERY_RESULT_BACKEND_THREAD_SAFE = True  # there is none; else each request's thread makes its own
CELERY_TASK_ACKS_LATE = False  # early ack; the sweeper covers what a crash loses (architecture §2)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # above the longest turn, so that the broker never redelivers one that runs (B62)
    "visibility_timeout": int(CONFIG["SOUVERAINE_TURN_TIMEOUT_SECONDS"]) + 600,
    # Early ack needs no emulation of acks; what a dying worker had fetched is enqueued again by the
    # sweeper. Saves a fifth of the worker's CPU time per turn.
    "ack_emulation": False,
}
CORS_ALLOWED_ORIGINS = CONFIG["SOUVERAINE_CORS_ORIGINS"]
CORS_URLS_REGEX = r"^/(v1|api)/.*$"
CHANNEL_LAYERS: dict[str, Any] = {}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["souveraine.api.auth.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["souveraine.api.auth.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["souveraine.api.rendering.CompactJSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["souveraine.api.parsing.StrictJSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "souveraine.api.rendering.AcceptAnything",
    "DEFAULT_SCHEMA_CLASS": "souveraine.api.schema.ContractSchema",
    "EXCEPTION_HANDLER": "souveraine.api.exceptions.handle",
    "URL_FORMAT_OVERRIDE": None,  # `?format=jsonl` must reach the view (architecture §6)
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Souveraine",
    "DESCRIPTION": "A self-hosted server for agents with memory, compatible with Letta clients.",
    "VERSION": __import__("souveraine").__version__,
    "OAS_VERSION": "3.1.0",
    "COMPONENT_SPLIT_PATCH": False,  # bodies are pydantic models; none has a second form for PATCH
    "SWAGGER_UI_SETTINGS": {
        "deepLinking": True,
        "displayOperationId": True,
        "docExpansion": "none",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": [],
    "SERVE_AUTHENTICATION": [],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "conversations.api.openapi.completion.complete",
    ],
    "APPEND_COMPONENTS": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
}
DATA_UPLOAD_MAX_MEMORY_SIZE = CONFIG["SOUVERAINE_MAX_REQUEST_BYTES"]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": sys.stderr}
    },
    "root": {"handlers": ["stderr"], "level": CONFIG["SOUVERAINE_LOG_LEVEL"]},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "daphne": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        "celery": {"level": "WARNING"},
    },
}
