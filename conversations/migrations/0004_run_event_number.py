"""A run's place among the runs of its conversation; what is live now gets the first one."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models


def number_live_runs(apps: Any, schema_editor: Any) -> None:
    run = apps.get_model("conversations", "Run")
    for live in run.objects.filter(status__in=["queued", "running"]):
        run.objects.filter(pk=live.pk).update(event_number=1)
        conversation = apps.get_model("conversations", "Conversation")
        conversation.objects.filter(pk=live.conversation_id).update(last_event_number=1)


class Migration(migrations.Migration):
    dependencies = [("conversations", "0003_approvals")]

    operations = [
        migrations.AddField(
            model_name="conversation",
            name="last_event_number",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="run",
            name="event_number",
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.RunPython(number_live_runs, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(
                fields=("conversation", "event_number"), name="run_event_number_unique"
            ),
        ),
    ]
