"""`/v1/providers`: model providers that people add, beside those of the configuration. Keys go in, never out."""

from __future__ import annotations

from typing import Annotated, Any

from drf_spectacular.utils import extend_schema
from pydantic import StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Provider
from agents.provider_selectors import get_provider, list_providers
from agents.providers import stored
from agents.services import providers as services
from conversations.api.base import ApiView, cursor
from conversations.api.bodies import Body, ShortText
from conversations.wire.states import ORGANIZATION_ID, moment
from souveraine import ids
from souveraine.api.pagination import PageQuery
from souveraine.api.validation import parse_body, parse_id, parse_query

Secret = Annotated[str, StringConstraints(max_length=20_000)]
Url = Annotated[str, StringConstraints(max_length=2000)]
TypeName = Annotated[str, StringConstraints(min_length=1, max_length=40)]


class ProviderOptions(Body):
    """What create, change and check share."""

    access_key: Secret | None = None
    region: ShortText | None = None
    base_url: Url | None = None
    api_version: ShortText | None = None


class ProviderCreate(ProviderOptions):
    """ProviderCreate. `api_key` may be empty for servers that need none."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    provider_type: TypeName
    api_key: Secret


class ProviderCheck(ProviderOptions):
    """ProviderCheck."""

    provider_type: TypeName
    api_key: Secret


class ProviderUpdate(ProviderOptions):
    """ProviderUpdate; what is left out stays."""

    api_key: Secret | None = None


class ProviderFilters(PageQuery):
    """Query of the providers list."""

    name: str | None = None
    provider_type: str | None = None


def provider_state(row: Provider) -> dict[str, Any]:
    """Return Letta's Provider; the keys of secrets are there, their values never."""
    return {
        "id": ids.make(ids.PROVIDER, row.pk),
        "name": row.name,
        "provider_type": row.provider_type,
        "provider_category": "byok",
        "api_key": None,
        "base_url": row.base_url or None,
        "access_key": None,
        "region": row.region or None,
        "api_version": row.api_version or None,
        "organization_id": ORGANIZATION_ID,
        "updated_at": moment(row.updated_at),
        "last_synced": moment(row.last_synced),
        "api_key_enc": None,
        "access_key_enc": None,
    }


class ProviderApiView(ApiView):
    """A view of one provider."""

    def provider(self, text: str) -> Provider:
        """Return the provider of the path. Raises ValidationFailed or NotFound."""
        return get_provider(self.actor, parse_id(ids.PROVIDER, text))


class ProvidersView(ApiView):
    """The collection."""

    query_model = ProviderFilters

    @extend_schema(operation_id="providers_list")
    def get(self, request: Request) -> Response:
        """List the providers that the caller added, newest first."""
        query = parse_query(ProviderFilters, request)
        found = list_providers(
            self.actor,
            name=query.name,
            provider_type=query.provider_type,
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.PROVIDER, query.after, "after"),
            before=cursor(ids.PROVIDER, query.before, "before"),
        )
        return Response([provider_state(row) for row in found])

    @extend_schema(operation_id="providers_create", request=ProviderCreate)
    def post(self, request: Request) -> Response:
        """Add a provider; it is not asked (see `check`)."""
        data = parse_body(ProviderCreate, request).model_dump(exclude_unset=True)
        return Response(provider_state(services.create_provider(self.actor, data)))


class ProviderCheckNewView(ApiView):
    """Trying a provider before it is added."""

    @extend_schema(operation_id="providers_check", request=ProviderCheck)
    def post(self, request: Request) -> Response:
        """Ask a provider for its models; its error is the answer's."""
        body = parse_body(ProviderCheck, request)
        provider = stored.build(
            body.provider_type, body.provider_type, body.base_url or "", body.api_key
        )
        return _checked(services.check_provider(provider), body.provider_type)


def _checked(models: list[Any], provider_type: str) -> Response:
    return Response(
        {
            "message": f"Valid api key for provider type {provider_type}",
            "models": [model.name for model in models[:1000]],
        }
    )


class ProviderView(ProviderApiView):
    """One provider."""

    @extend_schema(operation_id="providers_retrieve")
    def get(self, request: Request, provider_id: str) -> Response:
        """Return the provider."""
        return Response(provider_state(self.provider(provider_id)))

    @extend_schema(operation_id="providers_update", request=ProviderUpdate)
    def patch(self, request: Request, provider_id: str) -> Response:
        """Change key, address and the like."""
        data = parse_body(ProviderUpdate, request).model_dump(exclude_unset=True)
        row = services.update_provider(self.provider(provider_id), data)
        return Response(provider_state(row))

    @extend_schema(operation_id="providers_delete")
    def delete(self, request: Request, provider_id: str) -> Response:
        """Delete the provider; agents with its models cannot answer until they get others."""
        row = self.provider(provider_id)
        services.delete_provider(row)
        return Response({"message": f"Provider id=provider-{row.id} successfully deleted"})


class ProviderCheckView(ProviderApiView):
    """Trying a provider that is there."""

    @extend_schema(operation_id="providers_check_existing", request=None)
    def post(self, request: Request, provider_id: str) -> Response:
        """Ask the provider for its models with its stored key; its error is the answer's."""
        row = self.provider(provider_id)
        return _checked(services.check_provider(stored.provider_of(row)), row.provider_type)


class ProviderRefreshView(ProviderApiView):
    """Asking a provider for its models."""

    @extend_schema(operation_id="providers_refresh", request=None)
    def patch(self, request: Request, provider_id: str) -> Response:
        """Ask the provider for its models now, so that `/v1/models` shows them."""
        return Response(provider_state(services.sync_provider(self.provider(provider_id))))
