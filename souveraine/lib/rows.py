"""Saving rows that others may delete meanwhile: Django's plain `save()` would insert them again."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Model


@transaction.atomic
def save_present(row: Model) -> None:
    """Write all fields of a row that is still there. Raises its class's DoesNotExist when it is not."""
    type(row)._default_manager.select_for_update().get(pk=row.pk)
    row.save(force_update=True)
