"""`/v1/models` and health."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.providers.base import ModelInfo
from agents.providers.embeddings import list_embedding_models
from conversations.api.base import ApiView
from conversations.composition import server
from conversations.wire.archives import embedding_model_state
from souveraine import __version__
from souveraine.api.readiness import unreachable
from souveraine.api.validation import parse_query
from souveraine.errors import Unavailable


def model_state(model: ModelInfo) -> dict[str, Any]:
    """Return Letta's Model, with our `capabilities` beside it (null = the provider does not tell)."""
    return {
        "handle": model.handle,
        "name": model.name,
        "display_name": model.display_name,
        "provider_type": model.provider_type,
        "provider_name": model.provider_name,
        "model_type": "llm",
        "model": model.name,
        "model_endpoint_type": model.endpoint_type,
        "model_endpoint": model.endpoint,
        "provider_category": _category(model),
        "model_wrapper": None,
        "context_window": model.context_window,
        "put_inner_thoughts_in_kwargs": False,
        "temperature": 1.0,
        "max_tokens": model.max_output_tokens,
        "enable_reasoner": True,
        "reasoning_effort": None,
        "max_reasoning_tokens": 0,
        "effort": None,
        "frequency_penalty": None,
        "compatibility_type": None,
        "verbosity": None,
        "tier": None,
        "parallel_tool_calls": False,
        "response_format": None,
        "strict": False,
        "return_logprobs": False,
        "top_logprobs": None,
        "return_token_ids": False,
        "tool_call_parser": None,
        "max_context_window": model.context_window,
        "capabilities": None if model.capabilities is None else sorted(model.capabilities),
    }


def _category(model: ModelInfo) -> str:
    return "base" if model.owner_id is None else "byok"


class ModelFilters(BaseModel):
    """Query of the models list."""

    provider_category: list[str] | None = None
    provider_name: str | None = None
    provider_type: str | None = None


class ModelsView(ApiView):
    """The models that are really there."""

    query_model = ModelFilters

    @extend_schema(operation_id="models_list")
    def get(self, request: Request) -> Response:
        """List models; an unreachable provider is left out, not an error."""
        query = parse_query(ModelFilters, request)
        found = [
            m
            for m in server().models.list_models(self.actor)
            if query.provider_name in (None, m.provider_name)
            and query.provider_type in (None, m.provider_type)
            and (query.provider_category is None or _category(m) in query.provider_category)
        ]
        return Response([model_state(m) for m in found])


class EmbeddingModelsView(ApiView):
    """The embedding models."""

    @extend_schema(operation_id="models_embedding_list")
    def get(self, request: Request) -> Response:
        """List the embedding models that are really there; an unreachable provider is left out."""
        return Response([embedding_model_state(m) for m in list_embedding_models()])


class HealthView(APIView):
    """Is the web process up. Touches neither database nor Redis, and needs no key."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    @extend_schema(operation_id="health")
    def get(self, request: Request) -> Response:
        """Return version and status."""
        return Response({"version": __version__, "status": "ok"})


class ReadyView(APIView):
    """Can the web process work: it reaches its database and Redis. Needs no key."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    @extend_schema()
    def get(self, request: Request) -> Response:
        """Return version and status. 503 names what cannot be reached."""
        missing = unreachable()
        if missing:
            raise Unavailable(f"Not ready: cannot reach {' and '.join(missing)}.")
        return Response({"version": __version__, "status": "ok"})
