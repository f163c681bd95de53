"""Writes of providers, and the test whether one answers. Keys are encrypted at rest and never returned."""

from __future__ import annotations

import re
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.actor import Actor
from agents.models import Provider
from agents.providers import registry, stored
from agents.providers.base import ChatProvider, ModelInfo
from souveraine.errors import Conflict, InvalidArgument, ProviderError
from souveraine.lib.rows import save_present
from souveraine.lib.secrets import encrypt

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PLAIN = ("region", "api_version")


def create_provider(actor: Actor, data: dict[str, Any]) -> Provider:
    """Create a provider; it is not asked. Raises InvalidArgument and Conflict (name)."""
    name = data["name"]
    if not NAME.fullmatch(name):
        raise InvalidArgument(
            "The name of a provider is the first part of its models' handles: letters, digits, dot, hyphen and "
            "underscore, at most 64 characters."
        )
    if name in registry.providers() or name in registry.ALIASES:
        raise Conflict(f"The configuration has a provider '{name}' already. Choose another name.")
    row = Provider(owner=actor.user, name=name, provider_type=data["provider_type"])
    _apply(row, data)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise Conflict(f"There is a provider '{name}' already. Choose another name.") from None
    registry.refresh_stored()
    return row


def update_provider(row: Provider, data: dict[str, Any]) -> Provider:
    """Change key, address and the like; what is left out or null stays."""
    _apply(row, data)
    row.updated_at = timezone.now()
    save_present(row)
    registry.refresh_stored()
    return row


def _apply(row: Provider, data: dict[str, Any]) -> None:
    if data.get("base_url") is not None:
        row.base_url = data["base_url"].strip()
    for name in PLAIN:
        if data.get(name) is not None:
            setattr(row, name, data[name])
    key = data.get("api_key") or ""
    stored.build(row.name, row.provider_type, row.base_url, key)  # refuses what cannot be used
    for name in ("api_key", "access_key"):
        if data.get(name) is not None:
            setattr(row, f"{name}_encrypted", encrypt(data[name]) if data[name] else "")


def delete_provider(row: Provider) -> None:
    """Delete a provider. Agents keep the handles of its models and say that it is not there."""
    Provider.objects.filter(pk=row.pk).delete()
    registry.refresh_stored()


def check_provider(provider: ChatProvider) -> list[ModelInfo]:
    """Ask a provider for its models. Raises ProviderError for a wrong key, InvalidArgument when nobody answers."""
    try:
        return provider.list_models()
    except ProviderError as exc:
        if exc.status < 500:
            raise
        raise InvalidArgument(exc.provider_detail) from exc


def sync_provider(row: Provider) -> Provider:
    """Ask the provider for its models now, so that lists show them. Raises ProviderError."""
    check_provider(stored.provider_of(row))
    row.last_synced = timezone.now()
    Provider.objects.filter(pk=row.pk).update(last_synced=row.last_synced)
    registry.forget_listing()
    return row
