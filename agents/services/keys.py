"""API keys: make, check, revoke. Only hashes are stored; the key itself is shown once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from collections.abc import Iterable
from datetime import timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from agents.actor import ALL_SCOPES, Actor, first_user
from agents.models import ApiKey, User
from souveraine.errors import InvalidArgument

KEY_PREFIX = "sv-"
LAST_USED_RESOLUTION = timedelta(minutes=1)  # else each request would be a write


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def create_key(
    owner: User, name: str, scopes: Iterable[str] = ("read", "chat")
) -> tuple[ApiKey, str]:
    """Make a key and return its row and the key itself (32 random bytes), which is not stored."""
    chosen = sorted(set(scopes))
    unknown = set(chosen) - ALL_SCOPES
    if unknown or not chosen:
        raise InvalidArgument(
            f"Unknown scopes {sorted(unknown)}; choose from {sorted(ALL_SCOPES)}."
        )
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    row = ApiKey.objects.create(
        owner=owner, name=name, prefix=key[:10], hash=_hash(key), scopes=chosen
    )
    return row, key


def _usable() -> Q:
    return Q(revoked_at__isnull=True) & (
        Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    )


def authenticate_key(key: str) -> Actor | None:
    """Return the actor of a usable key, or None. The bootstrap key acts as the first user."""
    bootstrap = settings.CONFIG["SOUVERAINE_API_KEY"]
    if bootstrap and hmac.compare_digest(_hash(key), _hash(bootstrap)):
        return Actor(first_user(), ALL_SCOPES)
    row = ApiKey.objects.select_related("owner").filter(_usable(), hash=_hash(key)).first()
    if row is None or not row.owner.is_active:
        return None
    now = timezone.now()
    if row.last_used_at is None or now - row.last_used_at > LAST_USED_RESOLUTION:
        ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)
    return Actor(row.owner, frozenset(row.scopes), row.pk)


def is_usable(key_id: uuid.UUID) -> bool:
    """Tell whether a key that was accepted still would be: long-lived streams ask again."""
    return ApiKey.objects.filter(_usable(), pk=key_id, owner__is_active=True).exists()


def revoke_key(row: ApiKey) -> None:
    """Make a key unusable at once. Idempotent."""
    ApiKey.objects.filter(pk=row.pk, revoked_at__isnull=True).update(revoked_at=timezone.now())


def has_usable_key() -> bool:
    """Tell whether any key would be accepted: needed before binding elsewhere than to loopback."""
    return bool(settings.CONFIG["SOUVERAINE_API_KEY"]) or ApiKey.objects.filter(_usable()).exists()
