"""Reads of providers, and which models somebody may use."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from agents.actor import Actor
from agents.models import Provider
from agents.providers import registry
from agents.providers.base import ModelInfo
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.errors import NotFound


def providers_of(actor: Actor) -> QuerySet[Provider]:
    """Return the providers that the actor added."""
    return Provider.objects.filter(owner=actor.user)


def get_provider(actor: Actor, provider_id: uuid.UUID) -> Provider:
    """Return one provider. Raises NotFound."""
    row = providers_of(actor).filter(pk=provider_id).first()
    if row is None:
        raise NotFound(f"Provider with id '{ids.make(ids.PROVIDER, provider_id)}' not found")
    return row


def list_providers(
    actor: Actor,
    *,
    name: str | None,
    provider_type: str | None,
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Provider]:
    """Return one page of providers. Raises NotFound for an unknown cursor."""
    queryset = providers_of(actor)
    if name is not None:
        queryset = queryset.filter(name=name)
    if provider_type is not None:
        queryset = queryset.filter(provider_type=provider_type)
    return page(
        queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_provider(actor, after) if after else None,
        before=get_provider(actor, before) if before else None,
    )


def list_models(actor: Actor) -> list[ModelInfo]:
    """Return the models of the configuration's providers and of the actor's own; may block for some seconds."""
    registry.refresh_stored()
    return [m for m in registry.list_models() if m.owner_id in (None, actor.user_id)]


def get_model(actor: Actor, handle: str) -> ModelInfo:
    """Return a model that the actor may use. Raises as `registry.get_model`."""
    registry.refresh_stored_for(handle)
    return registry.get_model(handle, actor.user_id)
