"""Web tools under Letta's names. Fetching stays off until its guard against private addresses exists."""

from __future__ import annotations

from agents.tools.base import BUILTIN, BuiltinTool, ToolContext, ToolError, integer, schema, text


def web_search(context: ToolContext, query: str, num_results: int = 10) -> str:
    """Tell that no search provider is configured."""
    raise ToolError(
        "web_search is not configured on this server: it needs a search provider. Ask the operator to connect one "
        "as an MCP server, and answer from what you know meanwhile."
    )


def fetch_webpage(context: ToolContext, url: str) -> str:
    """Tell that fetching is switched off."""
    raise ToolError(
        "fetch_webpage is switched off on this server. Ask the operator to connect an MCP fetch server, or ask the "
        "person to paste the page's text."
    )


TOOLS = (
    BuiltinTool(
        name="web_search",
        description="Search the web.",
        parameters=schema(
            ("query",), query=text("What to search for."), num_results=integer("Most results.")
        ),
        run=web_search,
        tool_type=BUILTIN,
        idempotent=True,
    ),
    BuiltinTool(
        name="fetch_webpage",
        description="Fetch a web page and return its text.",
        parameters=schema(("url",), url=text("Address of the page.")),
        run=fetch_webpage,
        tool_type=BUILTIN,
        idempotent=True,
    ),
)
