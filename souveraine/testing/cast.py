"""The people of the tests: Alice runs the server, Bob is her friend, Charlie is a stranger.

Alice is the first user, as whom calls from this machine without a key are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.actor import ALL_SCOPES, first_user
from agents.models import User
from agents.services.keys import create_key


@dataclass(frozen=True)
class Person:
    """A user with a key; `headers` is what a request of theirs carries."""

    user: User
    key: str
    headers: dict[str, str] = field(default_factory=dict)


def person(user: User, *scopes: str) -> Person:
    """Give the user a key with these scopes (all when none is named)."""
    _, key = create_key(user, f"key of {user.username}", scopes or ALL_SCOPES)
    return Person(user, key, {"authorization": f"Bearer {key}"})


def alice(*scopes: str) -> Person:
    """Return Alice, the first user, with a new key."""
    return person(first_user(), *scopes)


def bob(*scopes: str) -> Person:
    """Return Bob with a new key."""
    return person(_user("bob"), *scopes)


def charlie(*scopes: str) -> Person:
    """Return Charlie with a new key."""
    return person(_user("charlie"), *scopes)


def _user(name: str) -> User:
    user, _ = User.objects.get_or_create(username=name)
    return user
