"""Runs that wait for their turn."""

from __future__ import annotations

from django.db import migrations, models

STATUSES = ["waiting", "queued", "running", "completed", "failed", "cancelled", "interrupted"]


class Migration(migrations.Migration):
    dependencies = [("conversations", "0004_run_event_number")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="status",
            field=models.CharField(
                choices=[(status, status.capitalize()) for status in STATUSES],
                default="queued",
                max_length=12,
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status", "waiting")),
                fields=["conversation", "first_sequence"],
                name="run_waiting",
            ),
        ),
    ]
