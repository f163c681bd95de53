"""Settings of a tiny Django site with the views of `tests.events.views`, for a daphne."""

from __future__ import annotations

import os
from typing import Any

SECRET_KEY = "for tests only"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.events.views"
INSTALLED_APPS = ["channels", "rest_framework"]
MIDDLEWARE = ["tests.events.views.mark"]
DATABASES: dict[str, Any] = {}
CHANNEL_LAYERS: dict[str, Any] = {}
REDIS_URL = os.environ.get("SOUVERAINE_TEST_REDIS_URL", "")
USE_TZ = True
CONFIG = {"SOUVERAINE_MAX_REQUEST_BYTES": 100_000}
DATA_UPLOAD_MAX_MEMORY_SIZE = CONFIG["SOUVERAINE_MAX_REQUEST_BYTES"]
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "EXCEPTION_HANDLER": "souveraine.api.exceptions.handle",
    "UNAUTHENTICATED_USER": None,
}
