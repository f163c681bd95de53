"""`/v1/agents/{id}/tools`: which tools an agent has, and running one by hand."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Agent
from agents.selectors import get_tool
from agents.services.tool_runs import run_tool
from agents.services.tools import attach_tool, detach_tool
from agents.tool_selectors import attached_tool, tools_of_agent
from conversations.api.base import ApiView, cursor
from conversations.api.tool_bodies import AgentToolFilters, ToolArguments
from conversations.composition import server
from conversations.wire.agents import agent_states
from conversations.wire.states import tool_state
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.api.validation import parse_body, parse_id, parse_query


class AgentToolsView(ApiView):
    """The tools of an agent."""

    query_model = AgentToolFilters

    @extend_schema(operation_id="agents_tools_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """List them, newest first."""
        agent = self.agent(agent_id)
        query = parse_query(AgentToolFilters, request)
        after = cursor(ids.TOOL, query.after, "after")
        before = cursor(ids.TOOL, query.before, "before")
        rows = page(
            tools_of_agent(agent),
            field="created_at",
            ascending=query.order == "asc",
            limit=query.limit,
            after=get_tool(self.actor, after) if after else None,
            before=get_tool(self.actor, before) if before else None,
        )
        return Response([tool_state(tool) for tool in rows])


class _AgentState(ApiView):
    def state(self, agent: Agent) -> Response:
        return Response(agent_states(self.actor, [agent], with_context=True)[0])


class AgentToolAttachView(_AgentState):
    """Attaching a tool."""

    @extend_schema(operation_id="agents_tools_attach")
    def patch(self, request: Request, agent_id: str, tool_id: str) -> Response:
        """Attach it; twice is once."""
        agent, tool = self.agent(agent_id), get_tool(self.actor, parse_id(ids.TOOL, tool_id))
        return self.state(attach_tool(self.actor, agent, tool))


class AgentToolDetachView(_AgentState):
    """Detaching a tool."""

    @extend_schema(operation_id="agents_tools_detach")
    def patch(self, request: Request, agent_id: str, tool_id: str) -> Response:
        """Detach it; twice is once."""
        agent, tool = self.agent(agent_id), get_tool(self.actor, parse_id(ids.TOOL, tool_id))
        return self.state(detach_tool(self.actor, agent, tool))


class AgentToolRunView(ApiView):
    """Running a tool by hand."""

    @extend_schema(operation_id="agents_tools_run", request=ToolArguments)
    def post(self, request: Request, agent_id: str, tool_name: str) -> Response:
        """Run an attached built-in tool on the agent's behalf. Custom code is refused, saying why."""
        body = parse_body(ToolArguments, request)
        agent = self.agent(agent_id)
        tool = attached_tool(agent, tool_name)
        conversation = server().sessions.default_conversation(self.actor, agent)
        result = run_tool(agent, conversation.pk, tool, body.args)
        fresh = server().inventory.get_agent(self.actor, agent.pk)
        return Response(
            {
                "status": "error" if result.is_error else "success",
                "func_return": result.text,
                "agent_state": agent_states(self.actor, [fresh], with_context=True)[0],
                "stdout": [],
                "stderr": [],
                "sandbox_config_fingerprint": None,
            }
        )
