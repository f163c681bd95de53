"""`/v1/tools`: the tools that agents can have."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.selectors import get_tool, tools_of
from agents.tools.registry import store_builtin_tools
from conversations.api.base import ApiView, cursor
from conversations.api.bodies import Body
from conversations.wire.states import tool_state
from souveraine import ids
from souveraine.api.pagination import PageQuery, page
from souveraine.api.validation import parse_body, parse_id, parse_query


class ToolFilters(PageQuery):
    """Query of the tools list."""

    name: str | None = None
    names: list[str] | None = None


class ToolsView(ApiView):
    """The collection."""

    query_model = ToolFilters

    @extend_schema(operation_id="tools_list")
    def get(self, request: Request) -> Response:
        """List built-in and own tools."""
        query = parse_query(ToolFilters, request)
        found = tools_of(self.actor)
        if query.name:
            found = found.filter(name=query.name)
        if query.names:
            found = found.filter(name__in=query.names)
        after = cursor(ids.TOOL, query.after, "after")
        before = cursor(ids.TOOL, query.before, "before")
        rows = page(
            found,
            field="created_at",
            ascending=query.order == "asc",
            limit=query.limit,
            after=get_tool(self.actor, after) if after else None,
            before=get_tool(self.actor, before) if before else None,
        )
        return Response([tool_state(tool) for tool in rows])


class ToolView(ApiView):
    """One tool."""

    @extend_schema(operation_id="tools_retrieve")
    def get(self, request: Request, tool_id: str) -> Response:
        """Return the tool."""
        return Response(tool_state(get_tool(self.actor, parse_id(ids.TOOL, tool_id))))


class AddBaseToolsView(ApiView):
    """The built-in tools, which are always there."""

    @extend_schema(operation_id="tools_add_base_tools")
    def post(self, request: Request) -> Response:
        """Bring the stored built-in tools up to date and return them; idempotent."""
        parse_body(Body, request)
        store_builtin_tools()
        return Response(
            [
                tool_state(t)
                for t in tools_of(self.actor).filter(owner__isnull=True).order_by("name")
            ]
        )
