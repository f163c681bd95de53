"""Keyset pages by Letta's `before`, `after`, `limit`, `order` (decision 0001). Cost: one indexed range.

Cursors are relative to the requested order: `after=X` continues behind X, `before=X` ends just before
X. Ties are broken by id, so each row appears once, also while rows are added.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from django.db.models import F, Model, Q, QuerySet
from pydantic import BaseModel, Field

MAX_LIMIT = 1000
Offset = Annotated[int, Field(ge=0, le=100_000)]
T = TypeVar("T", bound=Model)


class PageQuery(BaseModel):
    """The query parameters of a list."""

    before: str | None = None
    after: str | None = None
    limit: int = Field(default=50, ge=0, le=MAX_LIMIT)
    order: Literal["asc", "desc"] = "desc"


def _behind(field: str, cursor: Model, ascending: bool) -> Q:
    """Rows behind `cursor` in (field, pk) order; null sorts last in both directions."""
    value, op = getattr(cursor, field), "gt" if ascending else "lt"
    tie = Q(**{f"pk__{op}": cursor.pk})
    if value is None:
        return Q(**{f"{field}__isnull": True}) & tie
    return (
        Q(**{f"{field}__{op}": value})
        | (Q(**{field: value}) & tie)
        | Q(**{f"{field}__isnull": True})
    )


def _ahead(field: str, cursor: Model, ascending: bool) -> Q:
    value, op = getattr(cursor, field), "lt" if ascending else "gt"
    tie = Q(**{f"pk__{op}": cursor.pk})
    if value is None:
        return Q(**{f"{field}__isnull": False}) | tie
    return Q(**{f"{field}__{op}": value}) | (Q(**{field: value}) & tie)


def page(
    queryset: QuerySet[T],
    *,
    field: str,
    ascending: bool,
    limit: int,
    after: T | None = None,
    before: T | None = None,
    offset: int = 0,
) -> list[T]:
    """Return at most `limit` rows in (field, pk) order, without the first `offset` of them (letta-mobile pages so).

    `before` gives the rows nearest to the cursor.
    """
    if limit == 0:
        return []
    nullable = queryset.model._meta.get_field(field).null
    if after is not None:
        queryset = queryset.filter(
            _behind(field, after, ascending) if nullable else _strict(field, after, ascending)
        )
    if before is not None:
        queryset = queryset.filter(_ahead(field, before, ascending))
    reverse = before is not None and after is None
    rows = list(
        queryset.order_by(*_ordering(field, ascending != reverse, nullable, reverse))[
            offset : offset + limit
        ]
    )
    return rows[::-1] if reverse else rows


def _strict(field: str, cursor: Model, ascending: bool) -> Q:
    value, op = getattr(cursor, field), "gt" if ascending else "lt"
    return Q(**{f"{field}__{op}": value}) | (Q(**{field: value}) & Q(**{f"pk__{op}": cursor.pk}))


def _ordering(field: str, ascending: bool, nullable: bool, reverse: bool) -> list[Any]:
    if not nullable:
        sign = "" if ascending else "-"
        return [f"{sign}{field}", f"{sign}pk"]
    nulls: dict[str, Any] = {"nulls_first": True} if reverse else {"nulls_last": True}
    column = F(field)
    return [
        column.asc(**nulls) if ascending else column.desc(**nulls),
        "pk" if ascending else "-pk",
    ]
