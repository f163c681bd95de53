"""Authentication and scopes of the API. Every view has an actor; nothing is fetched without one."""

from __future__ import annotations

from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from agents.actor import Actor, keyless_actor
from agents.services.keys import authenticate_key
from souveraine.errors import Forbidden, Unauthorized
from souveraine.lib.program import program_name


def _presented_key(meta: dict[str, Any]) -> str | None:
    """Return the key of `Authorization: Bearer`, Letta's X-BARE-PASSWORD, or None.

    letta-code sends `Authorization: Bearer` with nothing behind it when it has no key.
    """
    scheme, _, token = meta.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return str(token.strip())
    bare = meta.get("HTTP_X_BARE_PASSWORD", "").strip()
    if bare:
        return str(bare.removeprefix("password").strip())
    return None


def key_actor(meta: dict[str, Any]) -> Actor | None:
    """Return the actor of the key that these headers carry, or None without a valid one."""
    key = _presented_key(meta)
    return authenticate_key(key) if key else None


def loopback_actor(meta: dict[str, Any], refusal: str | None) -> Actor:
    """Return the actor of a call without a valid key. Raises Unauthorized when `refusal` says why not."""
    if refusal is not None:
        what = "This API key is not valid" if _presented_key(meta) else "An API key is needed"
        raise Unauthorized(
            f"Unauthorized. {what}: {refusal}. Make one with `{program_name()} createkey` and send it as "
            "`Authorization: Bearer <key>`."
        )
    return keyless_actor()


class KeyAuthentication(BaseAuthentication):
    """A valid key wins; else loopback trust, under which any or no key is accepted."""

    def authenticate(self, request: Request) -> tuple[Any, Actor]:
        refusal = getattr(request._request, "keyless_refusal", "the guard did not run")
        actor = key_actor(request.META) or loopback_actor(request.META, refusal)
        return actor.user, actor

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class HasScope(BasePermission):
    """`read` for safe methods, else the view's `write_scope` (default `chat`)."""

    def has_permission(self, request: Request, view: Any) -> bool:
        scope = "read" if request.method in SAFE_METHODS else getattr(view, "write_scope", "chat")
        if not isinstance(request.auth, Actor) or scope not in request.auth.scopes:
            raise Forbidden(f"This key has no scope '{scope}'. Use a key that has it, or make one.")
        return True
