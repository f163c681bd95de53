"""Bodies and queries against pydantic models; failures in the old server's 422 form.

`detail` is the text of the error list, as Letta's clients know it; `errors` beside it is for machines.
"""

from __future__ import annotations

import types
import typing
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from django.http import QueryDict
from pydantic import AfterValidator, BaseModel, ValidationError
from rest_framework.request import Request

from souveraine import ids
from souveraine.errors import ValidationFailed
from souveraine.lib.text import bad_text_place

M = TypeVar("M", bound=BaseModel)


def _in_utc(at: datetime) -> datetime:
    try:
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError("the time lies outside of the years 1 to 9999") from None


UtcMoment = Annotated[datetime, AfterValidator(_in_utc)]  # without a zone it is taken as UTC


def failed(
    kind: str,
    loc: tuple[str | int, ...],
    message: str,
    given: Any = None,
    ctx: Mapping[str, Any] | None = None,
) -> ValidationFailed:
    """Build one 422 in the form of the old server."""
    error: dict[str, Any] = {"type": kind, "loc": loc, "msg": message, "input": given}
    if ctx:
        error["ctx"] = dict(ctx)
    return _rendered([error])


def _rendered(errors: list[dict[str, Any]]) -> ValidationFailed:
    public = [{"type": e["type"], "loc": list(e["loc"]), "msg": e["msg"]} for e in errors]
    return ValidationFailed(repr(errors)[:20_000], trace_id="", errors=public)


def _from_pydantic(exc: ValidationError, source: str) -> ValidationFailed:
    errors = []
    for raw in exc.errors(include_url=False):
        error = {
            "type": raw["type"],
            "loc": (source, *raw["loc"]),
            "msg": raw["msg"],
            "input": raw["input"],
        }
        if "ctx" in raw:
            error["ctx"] = raw["ctx"]
        errors.append(error)
    return _rendered(errors)


def parse_body(model: type[M], request: Request) -> M:
    """Validate the JSON body. Raises ValidationFailed (422)."""
    return parse_data(model, request.data)


def parse_data(model: type[M], data: Any) -> M:
    """Validate parsed JSON. Raises ValidationFailed (422)."""
    try:
        return model.model_validate(data)
    except ValidationError as exc:
        raise _from_pydantic(exc, "body") from None


def _is_list(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_is_list(arg) for arg in typing.get_args(annotation))
    return typing.get_origin(annotation) is list


def parse_query(model: type[M], request: Request) -> M:
    """Validate the query string; repeated keys fill list fields. Raises ValidationFailed (422)."""
    return parse_parameters(model, request.query_params)


def parse_parameters(model: type[M], parameters: QueryDict) -> M:
    """Validate a query string as `parse_query` does, where there is no request."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        given = parameters.getlist(key) or parameters.getlist(f"{key}[]")
        if not given:
            continue
        place = bad_text_place(given, f"query {key}")
        if place:
            raise failed("string_unicode", ("query", key), f"Remove it and send again. {place}")
        values[key] = given if _is_list(field.annotation) else given[-1]
    try:
        return model.model_validate(values)
    except ValidationError as exc:
        raise _from_pydantic(exc, "query") from None


def parse_id(prefix: str, text: str, name: str | None = None, *, source: str = "path") -> uuid.UUID:
    """Read an id of the path (or query). Raises ValidationFailed with an example, as the old server does."""
    try:
        return ids.parse(prefix, text)
    except ValueError:
        error = failed(
            "string_pattern_mismatch",
            (source, name or f"{prefix}_id"),
            f"String should match pattern '{prefix}-{{uuid4}}'",
            text[:200],
            {"pattern": ids.pattern(prefix)},
        )
        error.data["examples"] = [f"{prefix}-123e4567-e89b-42d3-8456-426614174000"]
        raise error from None
