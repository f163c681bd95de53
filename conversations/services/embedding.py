"""Vectors of messages: which ones have none of the present model yet, and keeping those that were made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.db.models import Max
from django.utils import timezone

from conversations.embedded import embedded_texts
from conversations.models import Message, MessageVector
from conversations.search import SEARCHED_ROLES

# A row gets its number before its transaction ends: without waiting, one that ends late would be passed over.
SETTLED = timedelta(seconds=10)


def texts_to_embed(handle: str, limit: int) -> dict[int, str]:
    """Return {row: text} of the oldest messages behind the last one that has a vector of this model."""
    last = MessageVector.objects.filter(model=handle).aggregate(last=Max("message_id"))["last"] or 0
    waiting = Message.objects.filter(
        row__gt=last, role__in=SEARCHED_ROLES, created_at__lt=timezone.now() - SETTLED
    ).exclude(text="")
    return embedded_texts(waiting.order_by("row")[:limit])


def keep_vectors(handle: str, vectors: Mapping[int, bytes]) -> None:
    """Store vectors in the place of older ones; twice is once. Messages that have gone meanwhile are left out."""
    owners = dict(Message.objects.filter(pk__in=vectors).values_list("row", "agent_id"))
    MessageVector.objects.bulk_create(
        (
            MessageVector(message_id=row, agent_id=owners[row], model=handle, vector=vector)
            for row, vector in vectors.items()
            if row in owners
        ),
        update_conflicts=True,
        unique_fields=["message"],
        update_fields=["model", "vector"],
    )
