"""The Celery application. Tasks are five lines; the work is in the apps' services."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "souveraine.settings")

app = Celery("souveraine")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
