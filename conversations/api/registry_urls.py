"""Routes of providers and MCP servers, and of agents as models of OpenAI's clients."""

from __future__ import annotations

from django.urls import re_path

from conversations.api import completions, mcp_servers, providers

MCP = r"^mcp-servers/(?P<mcp_server_id>[^/]+)"
MCP_BY_NAME = r"^tools/mcp/servers/(?P<mcp_server_name>[^/]+)"
PROVIDER = r"^providers/(?P<provider_id>[^/]+)"

urlpatterns = [
    re_path(r"^mcp-servers/?$", mcp_servers.McpServersView.as_view()),
    re_path(
        r"^mcp-servers/connect/(?P<mcp_server_id>[^/]+)/?$",
        mcp_servers.McpServerConnectView.as_view(),
    ),
    re_path(rf"{MCP}/?$", mcp_servers.McpServerView.as_view()),
    re_path(rf"{MCP}/refresh/?$", mcp_servers.McpServerRefreshView.as_view()),
    re_path(rf"{MCP}/tools/?$", mcp_servers.McpServerToolsView.as_view()),
    re_path(rf"{MCP}/tools/(?P<tool_id>[^/]+)/?$", mcp_servers.McpServerToolView.as_view()),
    re_path(rf"{MCP}/tools/(?P<tool_id>[^/]+)/run/?$", mcp_servers.McpServerToolRunView.as_view()),
    re_path(r"^tools/mcp/servers/?$", mcp_servers.LegacyServersView.as_view()),
    re_path(r"^tools/mcp/servers/connect/?$", mcp_servers.LegacyConnectView.as_view()),
    re_path(r"^tools/mcp/servers/test/?$", mcp_servers.LegacyTestView.as_view()),
    re_path(rf"{MCP_BY_NAME}/?$", mcp_servers.LegacyServerView.as_view()),
    re_path(rf"{MCP_BY_NAME}/tools/?$", mcp_servers.LegacyToolsView.as_view()),
    re_path(rf"{MCP_BY_NAME}/resync/?$", mcp_servers.LegacyResyncView.as_view()),
    re_path(rf"{MCP_BY_NAME}/(?P<mcp_tool_name>[^/]+)/?$", mcp_servers.LegacyToolView.as_view()),
    re_path(
        rf"{MCP_BY_NAME}/tools/(?P<mcp_tool_name>[^/]+)/execute/?$",
        mcp_servers.LegacyToolExecuteView.as_view(),
    ),
    re_path(r"^chat/completions/?$", completions.ChatCompletionsView.as_view()),
    re_path(
        r"^voice-beta/(?P<agent_id>[^/]+)/chat/completions/?$",
        completions.VoiceCompletionsView.as_view(),
    ),
    re_path(r"^providers/?$", providers.ProvidersView.as_view()),
    re_path(r"^providers/check/?$", providers.ProviderCheckNewView.as_view()),
    re_path(rf"{PROVIDER}/check/?$", providers.ProviderCheckView.as_view()),
    re_path(rf"{PROVIDER}/refresh/?$", providers.ProviderRefreshView.as_view()),
    re_path(rf"{PROVIDER}/?$", providers.ProviderView.as_view()),
]
