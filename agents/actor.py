"""Who is asking. Every service and selector takes an `Actor`; nothing is fetched without one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from agents.models import User

KEYLESS_SCOPES = frozenset({"read", "chat"})
ALL_SCOPES = frozenset({"read", "chat", "admin"})


@dataclass(frozen=True)
class Actor:
    """A person, with what the key (or loopback trust) allows. `key_id` is None for keyless calls."""

    user: User
    scopes: frozenset[str]
    key_id: uuid.UUID | None = None

    @property
    def user_id(self) -> uuid.UUID:
        return self.user.pk


def first_user() -> User:
    """Return the first user, created on first use. Safe to call twice at once."""
    user, _ = User.objects.get_or_create(
        pk=User.FIRST_ID, defaults={"username": "owner", "is_staff": False, "is_superuser": False}
    )
    return user


def keyless_actor() -> Actor:
    """Return the actor of a trusted loopback call without a key: the first user, without `admin`."""
    return Actor(first_user(), KEYLESS_SCOPES)
