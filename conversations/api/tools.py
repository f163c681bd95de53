"""`/v1/tools`: the tools that agents can have."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Tool
from agents.selectors import get_tool, tools_of
from agents.services import tools as tool_services
from agents.services.tool_runs import NOT_HERE
from agents.tool_selectors import ToolFilter, filter_tools, search_tools
from agents.tools.registry import store_builtin_tools
from agents.tools.source import describe
from conversations.api.base import ApiView, cursor
from conversations.api.bodies import Body
from conversations.api.tool_bodies import (
    CodeInput,
    ToolCreate,
    ToolFilters,
    ToolRunFromSource,
    ToolSearch,
    ToolUpdate,
)
from conversations.wire.states import tool_state
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.api.validation import parse_body, parse_id, parse_query
from souveraine.errors import InvalidArgument


def tool_filter(query: ToolFilters) -> ToolFilter:
    """Read the query. Raises ValidationFailed for a malformed id."""
    for text in query.tool_ids or ():
        parse_id(ids.TOOL, text, "tool_ids", source="query")
    is_builtin = None
    if query.return_only_letta_tools or query.exclude_letta_tools:
        is_builtin = query.return_only_letta_tools
    return ToolFilter(
        name=query.name,
        names=query.names or (),
        tool_ids=query.tool_ids or (),
        search=query.search,
        tool_types=query.tool_types or (),
        exclude_tool_types=query.exclude_tool_types or (),
        is_builtin=is_builtin,
    )


class ToolsView(ApiView):
    """The collection."""

    query_model = ToolFilters

    @extend_schema(operation_id="tools_list")
    def get(self, request: Request) -> Response:
        """List built-in and own tools, newest first."""
        query = parse_query(ToolFilters, request)
        after = cursor(ids.TOOL, query.after, "after")
        before = cursor(ids.TOOL, query.before, "before")
        rows = page(
            filter_tools(self.actor, tool_filter(query)),
            field="created_at",
            ascending=query.order == "asc",
            limit=query.limit,
            offset=query.offset,
            after=get_tool(self.actor, after) if after else None,
            before=get_tool(self.actor, before) if before else None,
        )
        return Response([tool_state(tool) for tool in rows])

    @extend_schema(operation_id="tools_create", request=ToolCreate)
    def post(self, request: Request) -> Response:
        """Create a tool, or change the one of that name."""
        return self._put(request)

    @extend_schema(operation_id="tools_upsert", request=ToolCreate)
    def put(self, request: Request) -> Response:
        """Create a tool, or change the one of that name; idempotent."""
        return self._put(request)

    def _put(self, request: Request) -> Response:
        data = parse_body(ToolCreate, request).model_dump(exclude_unset=True)
        return Response(tool_state(tool_services.put_tool(self.actor, data)))


class ToolCountView(ApiView):
    """How many tools there are."""

    query_model = ToolFilters

    @extend_schema(operation_id="tools_count")
    def get(self, request: Request) -> Response:
        """Count the tools, with the filters of the list."""
        query = parse_query(ToolFilters, request)
        return Response(filter_tools(self.actor, tool_filter(query)).count())


class ToolSearchView(ApiView):
    """Finding a tool by words."""

    @extend_schema(operation_id="tools_search", request=ToolSearch)
    def post(self, request: Request) -> Response:
        """Return tools by the words of their name, tags and description, best first."""
        body = parse_body(ToolSearch, request)
        if body.search_mode == "vector":
            raise InvalidArgument(
                "Tools are not embedded on this server: search with search_mode 'fts' or 'hybrid'."
            )
        found = search_tools(
            self.actor,
            body.query or "",
            tool_types=body.tool_types or (),
            tags=body.tags or (),
            limit=body.limit,
        )
        return Response(
            [
                {
                    "tool": tool_state(entry.tool),
                    "embedded_text": None,
                    "fts_rank": entry.rank,
                    "vector_rank": None,
                    "combined_score": entry.score,
                }
                for entry in found
            ]
        )


class ToolView(ApiView):
    """One tool."""

    def tool(self, text: str) -> Tool:
        """Return the tool of the path. Raises ValidationFailed or NotFound."""
        return get_tool(self.actor, parse_id(ids.TOOL, text))

    @extend_schema(operation_id="tools_retrieve")
    def get(self, request: Request, tool_id: str) -> Response:
        """Return the tool."""
        return Response(tool_state(self.tool(tool_id)))

    @extend_schema(operation_id="tools_update", request=ToolUpdate)
    def patch(self, request: Request, tool_id: str) -> Response:
        """Change the tool; a new source gives a new schema. Built-in tools cannot be changed."""
        data: dict[str, Any] = parse_body(ToolUpdate, request).model_dump(exclude_unset=True)
        return Response(tool_state(tool_services.update_tool(self.tool(tool_id), data)))

    @extend_schema(operation_id="tools_delete")
    def delete(self, request: Request, tool_id: str) -> Response:
        """Delete the tool and detach it everywhere. Built-in tools cannot be deleted."""
        tool_services.delete_tool(self.tool(tool_id))
        return Response(None)


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


class GenerateSchemaView(ApiView):
    """What a source would be offered to a model as."""

    @extend_schema(operation_id="tools_generate_schema", request=CodeInput)
    def post(self, request: Request) -> Response:
        """Derive the schema; nothing is run or stored."""
        body = parse_body(CodeInput, request)
        if (body.source_type or "python") not in tool_services.PYTHON:
            raise InvalidArgument("A schema is derived from Python only. Write it yourself.")
        return Response(describe(body.code).json_schema)


class RunSourceView(ApiView):
    """Trying a tool out before it is created."""

    @extend_schema(operation_id="tools_run", request=ToolRunFromSource)
    def post(self, request: Request) -> Response:
        """Check the source; custom code cannot run on this server yet, which is what it answers."""
        body = parse_body(ToolRunFromSource, request)
        name = tool_services.described(body.model_dump(exclude_unset=True))["name"]
        raise InvalidArgument(NOT_HERE.format(name=name))
