"""The registry of MCP servers with the unmodified Python SDK."""

from __future__ import annotations

from letta_client import Letta

from tests.e2e.conftest import Serve


def test_servers_are_registered_changed_and_deleted(server: Serve) -> None:
    client = Letta(base_url=server.url, api_key="local-dev-key")
    made = client.mcp_servers.create(
        server_name="tools",
        config={
            "mcp_server_type": "streamable_http",
            "server_url": "https://mcp.example/mcp",
            "auth_token": "very-secret",
        },
    )
    assert made.id is not None
    assert made.auth_token == "********"
    assert [s.id for s in client.mcp_servers.list()] == [made.id]
    changed = client.mcp_servers.update(
        made.id,
        server_name="more",
        config={"mcp_server_type": "streamable_http", "server_url": "https://mcp.example/2"},
    )
    assert (changed.server_name, changed.server_url) == ("more", "https://mcp.example/2")
    assert client.mcp_servers.retrieve(made.id).server_name == "more"
    assert list(client.mcp_servers.tools.list(made.id)) == []
    client.mcp_servers.delete(made.id)
    assert client.mcp_servers.list() == []
