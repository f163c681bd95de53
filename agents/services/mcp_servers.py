"""The registry of MCP servers: writes, and what of a server may be seen. Connections are not made yet."""

from __future__ import annotations

import json
import uuid
from typing import Any, NoReturn

from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.actor import Actor
from agents.models import McpServer
from souveraine.errors import Conflict, InvalidArgument, McpServerUnavailable, NotFound
from souveraine.lib.rows import save_present
from souveraine.lib.secrets import decrypt, encrypt

STDIO, SSE, HTTP = "stdio", "sse", "streamable_http"
SEEN = {
    STDIO: ("command", "args"),
    SSE: ("server_url", "auth_header"),
    HTTP: ("server_url", "auth_header"),
}
SECRET = {
    STDIO: ("env",),
    SSE: ("auth_token", "custom_headers"),
    HTTP: ("auth_token", "custom_headers"),
}
MASK = "********"


def servers_of(actor: Actor) -> list[McpServer]:
    """Return the actor's servers, oldest first."""
    return list(McpServer.objects.filter(owner=actor.user).order_by("created_at", "pk"))


def get_server(actor: Actor, server_id: uuid.UUID) -> McpServer:
    """Return one server. Raises NotFound."""
    row = McpServer.objects.filter(owner=actor.user, pk=server_id).first()
    if row is None:
        raise NotFound(f"MCP server with id 'mcp_server-{server_id}' not found")
    return row


def server_of_name(actor: Actor, name: str) -> McpServer:
    """Return the server of that name. Raises NotFound."""
    row = McpServer.objects.filter(owner=actor.user, name=name).first()
    if row is None:
        raise NotFound(f"MCP server '{name[:200]}' not found")
    return row


def add_server(actor: Actor, name: str, kind: str, given: dict[str, Any]) -> McpServer:
    """Register a server. Raises Conflict for a name that is taken, InvalidArgument for an address that is none."""
    row = McpServer(
        owner=actor.user, name=name, kind=kind, has_admin_origin="admin" in actor.scopes
    )
    _apply(row, given, {})
    _save(row, is_new=True)
    return row


def update_server(
    actor: Actor, row: McpServer, name: str | None, given: dict[str, Any]
) -> McpServer:
    """Change a server; what is left out or null stays, and so does a secret sent back as it was masked.

    A changed command needs the scope `admin` anew to be one that may be started.
    """
    secrets = json.loads(decrypt(row.secrets_encrypted)) if row.secrets_encrypted else {}
    row.name = name or row.name
    row.has_admin_origin = "admin" in actor.scopes
    _apply(row, given, secrets)
    _save(row, is_new=False)
    return row


def _apply(row: McpServer, given: dict[str, Any], secrets: dict[str, Any]) -> None:
    config = {**row.config}
    for key in SEEN[row.kind]:
        if given.get(key) is not None:
            config[key] = given[key]
    url = config.get("server_url", "")
    if row.kind != STDIO and not url.startswith(("http://", "https://")):
        raise InvalidArgument("server_url must begin with http:// or https://.")
    for key in SECRET[row.kind]:
        if given.get(key) is not None:
            secrets[key] = _unmasked(given[key], secrets.get(key))
    row.config, row.secrets_encrypted = config, encrypt(json.dumps(secrets)) if secrets else ""
    row.updated_at = timezone.now()


def _unmasked(given: Any, known: Any) -> Any:
    if isinstance(given, dict):
        before = known if isinstance(known, dict) else {}
        return {k: before.get(k, v) if v == MASK else v for k, v in given.items()}
    return known if given == MASK and known is not None else given


def _save(row: McpServer, *, is_new: bool) -> None:
    try:
        with transaction.atomic():
            if is_new:
                row.save(force_insert=True)
            else:
                save_present(row)
    except IntegrityError:
        raise Conflict(f"You have an MCP server named '{row.name}' already.") from None


def delete_server(row: McpServer) -> None:
    """Delete a server."""
    McpServer.objects.filter(pk=row.pk).delete()


def visible_config(row: McpServer) -> dict[str, Any]:
    """Return the whole configuration with masks in place of secrets; absent ones are null."""
    secrets = json.loads(decrypt(row.secrets_encrypted)) if row.secrets_encrypted else {}
    masked = {key: _masked(secrets.get(key)) for key in SECRET[row.kind]}
    seen = {key: row.config.get(key) for key in SEEN[row.kind]}
    if row.kind == STDIO:
        seen["args"] = seen["args"] or []
    return {**seen, **masked}


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(value, MASK)
    return MASK if value else None


def refuse_connection(row: McpServer | None = None) -> NoReturn:
    """Say that nothing is connected yet. Raises McpServerUnavailable."""
    name = f"'{row.name}' " if row is not None else ""
    raise McpServerUnavailable(
        f"The MCP server {name}cannot be asked: this server keeps MCP servers in its registry, but does not connect "
        "to them yet."
    )
