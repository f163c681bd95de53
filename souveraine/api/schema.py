"""OpenAPI: what drf-spectacular cannot see by itself: keys, JSON answers, and queries as pydantic models."""

from __future__ import annotations

import types
import typing
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel

_TYPES: dict[Any, Any] = {int: int, bool: bool, float: float, str: str}


def parameters_of(model: type[BaseModel]) -> list[OpenApiParameter]:
    """Describe a query model's fields."""
    return [
        _parameter(name, field.annotation, field.default)
        for name, field in model.model_fields.items()
    ]


def _parameter(name: str, annotation: Any, default: Any) -> OpenApiParameter:
    choices = [a for a in _members(annotation) if a is not type(None)]
    is_list = any(typing.get_origin(a) is list for a in choices)
    literals = [
        v for a in choices if typing.get_origin(a) is typing.Literal for v in typing.get_args(a)
    ]
    kind = next((_TYPES[a] for a in choices if a in _TYPES), str)
    return OpenApiParameter(
        name,
        str if is_list else kind,
        many=is_list,
        enum=literals or None,
        default=default if isinstance(default, int | str | bool) else None,
    )


def _members(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


class ContractSchema(AutoSchema):
    """Describes views whose answers are plain dictionaries in the contract's shapes (docs/api.md).

    A view names the model of its query in `query_model`: that of GET if it has GET. `query_models` has those of others.
    """

    def get_auth(self) -> list[dict[str, list[str]]]:
        """Give the key; none is needed from the server's own machine."""
        return (
            [] if getattr(self.view, "authentication_classes", None) == [] else [{"bearer": []}, {}]
        )

    def get_override_parameters(self) -> list[Any]:
        """Give the query's fields."""
        model = getattr(self.view, "query_models", {}).get(self.method)
        if model is None and (self.method == "GET" or not hasattr(self.view, "get")):
            model = getattr(self.view, "query_model", None)
        return parameters_of(model) if model is not None else []

    def get_request_serializer(self) -> Any:
        """Give no body unless `extend_schema` names one."""
        return None

    def get_response_serializers(self) -> Any:
        """Give a JSON answer."""
        return {200: OpenApiTypes.ANY}
