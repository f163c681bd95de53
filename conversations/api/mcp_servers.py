"""`/v1/mcp-servers` and the older `/v1/tools/mcp/servers`: one registry behind both. Connections are not made yet."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import McpServer
from agents.services import mcp_servers as services
from conversations.api.base import ApiView
from conversations.api.bodies import Body
from conversations.api.tool_bodies import ToolArguments
from souveraine import ids
from souveraine.api.validation import failed, parse_body, parse_id
from souveraine.errors import NotFound
from souveraine.lib.text import bad_text_place

Name = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^/\x00-\x1f]+$")]
Text = Annotated[str, StringConstraints(max_length=20_000)]
Url = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Map = Annotated[dict[str, Text], Field(max_length=200)]
Kind = Literal["sse", "stdio", "streamable_http"]
FOR_AGENT = [OpenApiParameter("agent_id", str, description="Whose secrets fill in placeholders.")]


class McpConfig(Body):
    """What the kinds have together; each reads what is its own."""

    mcp_server_type: Kind | None = None
    server_url: Url | None = None
    auth_header: Text | None = None
    auth_token: Text | None = None
    custom_headers: Map | None = None
    command: Text | None = None
    args: Annotated[list[Text], Field(max_length=1000)] | None = None
    env: Map | None = None


class McpServerCreate(Body):
    """CreateMCPServerRequest."""

    server_name: Name
    config: McpConfig


class McpServerUpdate(Body):
    """UpdateMCPServerRequest; what is left out stays."""

    server_name: Name | None = None
    config: McpConfig


class LegacyServer(McpConfig):
    """A server in the older form, with its name and type inside."""

    server_name: Name
    type: Kind | None = None


class LegacyUpdate(McpConfig):
    """A change in the older form."""

    server_name: Name | None = None
    token: Text | None = None
    stdio_config: McpConfig | None = None


def _kind(config: McpConfig, named: str | None = None) -> str:
    """Return the kind of a configuration, named or seen. Raises ValidationFailed when something it needs is missing."""
    kind = config.mcp_server_type or named
    if kind is None:
        kind = services.STDIO if config.command else services.HTTP
    needed = "command" if kind == services.STDIO else "server_url"
    if not getattr(config, needed):
        raise failed("missing", ("body", "config", needed), "Field required")
    return kind


def server_state(row: McpServer) -> dict[str, Any]:
    """Return StdioMCPServer, SSEMCPServer or StreamableHTTPMCPServer, with masks in place of secrets."""
    return {
        "mcp_server_type": row.kind,
        **services.visible_config(row),
        "id": ids.make(ids.MCP_SERVER, row.pk),
        "server_name": row.name,
    }


def legacy_state(row: McpServer) -> dict[str, Any]:
    """Return the older StdioServerConfig, SSEServerConfig or StreamableHTTPServerConfig."""
    return {"server_name": row.name, "type": row.kind, **services.visible_config(row)}


class McpApiView(ApiView):
    """A view of one server."""

    def server(self, text: str) -> McpServer:
        """Return the server of a path id. Raises ValidationFailed or NotFound."""
        return services.get_server(self.actor, parse_id(ids.MCP_SERVER, text))


class McpServersView(ApiView):
    """The collection."""

    @extend_schema(operation_id="mcp_servers_list")
    def get(self, request: Request) -> Response:
        """List the servers, oldest first."""
        return Response([server_state(row) for row in services.servers_of(self.actor)])

    @extend_schema(operation_id="mcp_servers_create", request=McpServerCreate)
    def post(self, request: Request) -> Response:
        """Register a server; it is not asked."""
        body = parse_body(McpServerCreate, request)
        given = body.config.model_dump(exclude_none=True)
        row = services.add_server(self.actor, body.server_name, _kind(body.config), given)
        return Response(server_state(row))


class McpServerView(McpApiView):
    """One server."""

    @extend_schema(operation_id="mcp_servers_retrieve")
    def get(self, request: Request, mcp_server_id: str) -> Response:
        """Return the server."""
        return Response(server_state(self.server(mcp_server_id)))

    @extend_schema(operation_id="mcp_servers_update", request=McpServerUpdate)
    def patch(self, request: Request, mcp_server_id: str) -> Response:
        """Change name or configuration; the type stays."""
        body = parse_body(McpServerUpdate, request)
        row = self.server(mcp_server_id)
        given = body.config.model_dump(exclude_none=True)
        return Response(
            server_state(services.update_server(self.actor, row, body.server_name, given))
        )

    @extend_schema(operation_id="mcp_servers_delete", responses={204: None})
    def delete(self, request: Request, mcp_server_id: str) -> Response:
        """Delete the server."""
        services.delete_server(self.server(mcp_server_id))
        return Response(status=204)


class McpServerConnectView(McpApiView):
    """Connecting."""

    @extend_schema(operation_id="mcp_servers_connect")
    def get(self, request: Request, mcp_server_id: str) -> Response:
        """Say that connections are not made yet."""
        services.refuse_connection(self.server(mcp_server_id))


class McpServerRefreshView(McpApiView):
    """Asking a server for its tools."""

    @extend_schema(operation_id="mcp_servers_refresh", request=None, parameters=FOR_AGENT)
    def patch(self, request: Request, mcp_server_id: str) -> Response:
        """Say that connections are not made yet."""
        services.refuse_connection(self.server(mcp_server_id))


class McpServerToolsView(McpApiView):
    """A server's tools."""

    @extend_schema(operation_id="mcp_servers_tools_list")
    def get(self, request: Request, mcp_server_id: str) -> Response:
        """List the tools that are known of the server: none, as long as it is not connected."""
        self.server(mcp_server_id)
        return Response([])


class McpServerToolView(McpApiView):
    """One of its tools."""

    @extend_schema(operation_id="mcp_servers_tools_retrieve")
    def get(self, request: Request, mcp_server_id: str, tool_id: str) -> Response:
        """Say that there is none."""
        self.server(mcp_server_id)
        raise NotFound(
            f"Tool with id '{ids.make(ids.TOOL, parse_id(ids.TOOL, tool_id))}' not found"
        )


class McpServerToolRunView(McpApiView):
    """Running one of its tools."""

    @extend_schema(operation_id="mcp_servers_tools_run", request=ToolArguments)
    def post(self, request: Request, mcp_server_id: str, tool_id: str) -> Response:
        """Say that there is none."""
        self.server(mcp_server_id)
        raise NotFound(
            f"Tool with id '{ids.make(ids.TOOL, parse_id(ids.TOOL, tool_id))}' not found"
        )


class LegacyServersView(ApiView):
    """The collection in its older form."""

    @extend_schema(operation_id="tools_mcp_servers_list")
    def get(self, request: Request) -> Response:
        """Return the servers by name."""
        rows = services.servers_of(self.actor)
        return Response({row.name: legacy_state(row) for row in rows})

    @extend_schema(operation_id="tools_mcp_servers_add", request=LegacyServer)
    def put(self, request: Request) -> Response:
        """Register a server and return all."""
        body = parse_body(LegacyServer, request)
        given = body.model_dump(exclude_none=True)
        services.add_server(self.actor, body.server_name, _kind(body, body.type), given)
        return Response([legacy_state(row) for row in services.servers_of(self.actor)])


class LegacyConnectView(ApiView):
    """Trying a server that is not registered."""

    @extend_schema(operation_id="tools_mcp_servers_connect", request=LegacyServer)
    def post(self, request: Request) -> Response:
        """Say that connections are not made yet."""
        parse_body(LegacyServer, request)
        services.refuse_connection()


class LegacyTestView(LegacyConnectView):
    """The same under another name."""

    @extend_schema(operation_id="tools_mcp_servers_test", request=LegacyServer)
    def post(self, request: Request) -> Response:
        """Say that connections are not made yet."""
        return super().post(request)


class LegacyServerView(ApiView):
    """One server by its name."""

    @extend_schema(operation_id="tools_mcp_servers_update", request=LegacyUpdate)
    def patch(self, request: Request, mcp_server_name: str) -> Response:
        """Change the server."""
        body = parse_body(LegacyUpdate, request)
        row = services.server_of_name(self.actor, named(mcp_server_name))
        given = body.model_dump(exclude_none=True, exclude={"stdio_config"})
        if body.stdio_config is not None:
            given |= body.stdio_config.model_dump(exclude_none=True)
        if body.token is not None:
            given["auth_token"] = body.token
        return Response(
            legacy_state(services.update_server(self.actor, row, body.server_name, given))
        )

    @extend_schema(operation_id="tools_mcp_servers_delete", responses={200: None})
    def delete(self, request: Request, mcp_server_name: str) -> Response:
        """Delete the server and return the others."""
        services.delete_server(services.server_of_name(self.actor, named(mcp_server_name)))
        return Response([legacy_state(row) for row in services.servers_of(self.actor)])


class LegacyToolsView(ApiView):
    """A server's tools by its name."""

    @extend_schema(operation_id="tools_mcp_servers_tools_list")
    def get(self, request: Request, mcp_server_name: str) -> Response:
        """List the tools that are known of the server: none, as long as it is not connected."""
        services.server_of_name(self.actor, named(mcp_server_name))
        return Response([])


class LegacyResyncView(ApiView):
    """Asking a server for its tools by its name."""

    @extend_schema(operation_id="tools_mcp_servers_resync", request=None, parameters=FOR_AGENT)
    def post(self, request: Request, mcp_server_name: str) -> Response:
        """Say that connections are not made yet."""
        row = services.server_of_name(self.actor, named(mcp_server_name))
        services.refuse_connection(row)


class LegacyToolView(ApiView):
    """Adding or running a tool of a server."""

    @extend_schema(operation_id="tools_mcp_servers_tool_add", request=None)
    def post(self, request: Request, mcp_server_name: str, mcp_tool_name: str) -> Response:
        """Say that connections are not made yet."""
        row = services.server_of_name(self.actor, named(mcp_server_name))
        services.refuse_connection(row)


class LegacyToolExecuteView(LegacyToolView):
    """Running it."""

    @extend_schema(operation_id="tools_mcp_servers_tool_execute", request=ToolArguments)
    def post(self, request: Request, mcp_server_name: str, mcp_tool_name: str) -> Response:
        """Say that connections are not made yet."""
        return super().post(request, mcp_server_name, mcp_tool_name)


def named(text: str) -> str:
    """Check a name of the path. Raises ValidationFailed."""
    place = bad_text_place(text, "path")
    if place:
        raise failed("string_unicode", ("path", "mcp_server_name"), place)
    return text
