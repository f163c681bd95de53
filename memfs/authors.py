"""Who wrote a commit: the identities of agents, their cadences, the API, people and the server.

The kind is carried by the e-mail address, so that a log tells agent from person without a
second store. It is a label, not a proof: whoever may push may write any address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

AuthorKind = Literal["agent", "sub", "reflect", "archive", "api", "user", "system"]
Cadence = Literal["sub", "reflect", "archive"]

DOMAIN = "souveraine.local"
_USER_DOMAIN = f"user.{DOMAIN}"
_CADENCES: tuple[Cadence, ...] = ("sub", "reflect", "archive")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f<>]+")
_NOT_IN_ADDRESSES = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Author:
    """One identity as git shows it (`name <email>`) and what kind of writer it is."""

    name: str
    email: str
    kind: AuthorKind


API_AUTHOR = Author("api", f"api@{DOMAIN}", "api")
SYSTEM_AUTHOR = Author("Souveraine", "agent@souveraine.ai", "system")


def agent_author(agent_id: str, cadence: Cadence | None = None) -> Author:
    """Return the identity of an agent (`agent-…`), or of one of its background cadences."""
    name = _NOT_IN_ADDRESSES.sub("-", agent_id.lower()).strip("-.") or "agent"
    if cadence is None:
        return Author(name, f"{name}@{DOMAIN}", "agent")
    return Author(f"{name}-{cadence}", f"{name}-{cadence}@{DOMAIN}", cadence)


def user_author(name: str) -> Author:
    """Return the identity of a person; signs that git cannot store in a name are left out."""
    shown = " ".join(_NOT_IN_NAMES.sub(" ", name).split()) or "user"
    # git drops such signs at both ends of a name and refuses a name made of nothing else
    shown = shown.strip(" .,:;\"'\\") or "user"
    local = _NOT_IN_ADDRESSES.sub("-", shown.lower()).strip("-.") or "user"
    return Author(shown, f"{local}@{_USER_DOMAIN}", "user")


def author_kind(email: str) -> AuthorKind:
    """Recover the kind from an address; anything that is not ours was a person's git."""
    if email == SYSTEM_AUTHOR.email:
        return "system"
    if email == API_AUTHOR.email:
        return "api"
    local, _, domain = email.rpartition("@")
    if domain != DOMAIN:
        return "user"
    for cadence in _CADENCES:
        if local.endswith(f"-{cadence}"):
            return cadence
    return "agent"
