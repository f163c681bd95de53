"""Queries for tags that are stored as a JSON list of texts."""

from __future__ import annotations

import json
from typing import TypeVar, cast

from django.db.models import Model, Q, QuerySet, TextField
from django.db.models.functions import Cast

T = TypeVar("T", bound=Model)


def with_tags(queryset: QuerySet[T], tags: list[str], *, match_all: bool = False) -> QuerySet[T]:
    """Keep the rows whose `tags` hold any of these, or all of them.

    The list is matched as text: databases write characters beyond ASCII in two ways.
    """
    tests = [
        Q(tag_text__contains=json.dumps(tag))
        | Q(tag_text__contains=json.dumps(tag, ensure_ascii=False))
        for tag in tags
    ]
    found = Q()
    for test in tests:
        found = found & test if match_all else found | test
    marked = queryset.alias(tag_text=Cast("tags", TextField())).filter(found)
    return cast("QuerySet[T]", marked)
