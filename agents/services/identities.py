"""Identities: create, upsert, change, delete, and which agents and blocks they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction

from agents.actor import Actor
from agents.models import Agent, Block, Identity
from souveraine import ids
from souveraine.errors import NotFound, UniqueViolation
from souveraine.lib.rows import save_present

FIELDS = ("identifier_key", "name", "identity_type", "properties")


def find_identities(actor: Actor, texts: Sequence[str]) -> list[Identity]:
    """Return the identities of these ids. Raises NotFound naming those that are not there."""
    wanted = [ids.parse(ids.IDENTITY, text) for text in texts]
    found = list(Identity.objects.filter(owner=actor.user, pk__in=wanted))
    missing = sorted({f"identity-{pk}" for pk in wanted} - {f"identity-{i.pk}" for i in found})
    if missing:
        raise NotFound(f"Identities not found: {', '.join(missing[:20])}")
    return found


def create_identity(
    actor: Actor,
    data: dict[str, Any],
    agents: Sequence[Agent] | None,
    blocks: Sequence[Block] | None,
) -> Identity:
    """Create an identity. Raises UniqueViolation when its key is taken in the project."""
    identity = Identity(owner=actor.user, project=data.get("project_id") or "")
    return _saved(identity, data, agents, blocks, is_new=True)


def upsert_identity(
    actor: Actor,
    data: dict[str, Any],
    agents: Sequence[Agent] | None,
    blocks: Sequence[Block] | None,
) -> Identity:
    """Create the identity of this key, or replace what it has by what `data` has. Of two at once both succeed."""
    key = {"project": data.get("project_id") or "", "identifier_key": data["identifier_key"]}
    known = Identity.objects.filter(owner=actor.user, **key).first()
    if known is None:
        try:
            return create_identity(actor, data, agents, blocks)
        except UniqueViolation:
            known = Identity.objects.get(owner=actor.user, **key)
    return _saved(known, data, agents, blocks, is_new=False)


def update_identity(
    identity: Identity,
    data: dict[str, Any],
    agents: Sequence[Agent] | None,
    blocks: Sequence[Block] | None,
) -> Identity:
    """Change what is given; lists replace. Raises UniqueViolation when the new key is taken."""
    return _saved(identity, data, agents, blocks, is_new=False)


def _saved(
    identity: Identity,
    data: dict[str, Any],
    agents: Sequence[Agent] | None,
    blocks: Sequence[Block] | None,
    *,
    is_new: bool,
) -> Identity:
    for name in FIELDS:
        if data.get(name) is not None:
            setattr(identity, name, data[name])
    try:
        with transaction.atomic():
            if is_new:
                identity.save(force_insert=True)
            else:
                save_present(identity)
            if agents is not None:
                identity.agents.set(agents)
            if blocks is not None:
                identity.blocks.set(blocks)
    except IntegrityError:
        raise UniqueViolation("Identity", f"identifier_key '{identity.identifier_key}'") from None
    return identity


def set_properties(identity: Identity, properties: list[dict[str, Any]]) -> None:
    """Set properties by their keys; others stay."""
    with transaction.atomic():
        locked = Identity.objects.select_for_update().get(pk=identity.pk)
        merged = {item["key"]: item for item in [*locked.properties, *properties]}
        Identity.objects.filter(pk=identity.pk).update(properties=list(merged.values()))


def delete_identity(identity: Identity) -> None:
    """Delete an identity; its agents and blocks stay."""
    Identity.objects.filter(pk=identity.pk).delete()
