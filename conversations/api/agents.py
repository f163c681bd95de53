"""`/v1/agents`: create, list, retrieve, update, delete, count, and the blocks of an agent."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Agent, Block
from agents.selectors import filter_agents, get_block
from agents.services import blocks as block_services
from agents.services.memory import take_up_edits
from conversations.api.base import ApiView, cursor
from conversations.api.bodies import BlockUpdate, CreateAgent, UpdateAgent
from conversations.api.incoming import initial_messages
from conversations.composition import server
from conversations.services.accept import begin_with
from conversations.wire.agents import agent_states, wanted_relationships
from conversations.wire.states import block_state
from souveraine import ids
from souveraine.api.pagination import Offset, PageQuery
from souveraine.api.validation import failed, parse_body, parse_id, parse_query
from souveraine.lib.text import bad_text_place

Order = Literal["created_at", "updated_at", "last_run_completion"]


class AgentFilters(PageQuery):
    """Query of the agents list."""

    name: str | None = None
    tags: list[str] | None = None
    match_all_tags: bool = False
    query_text: str | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    identity_id: str | None = None
    identifier_keys: list[str] | None = None
    include: list[str] | None = None
    include_relationships: list[str] | None = None
    order_by: Order = "created_at"
    sort_by: Order | None = None
    ascending: bool = False
    last_stop_reason: str | None = None
    created_by_id: str | None = None
    offset: Offset = 0
    slim: bool = False


def _filters(query: AgentFilters) -> dict[str, Any]:
    if query.created_by_id:
        parse_id(ids.USER, query.created_by_id, "created_by_id", source="query")
    if query.identity_id:
        parse_id(ids.IDENTITY, query.identity_id, "identity_id", source="query")
    return query.model_dump()


class AgentsView(ApiView):
    """The collection."""

    query_model = AgentFilters

    @extend_schema(operation_id="agents_list")
    def get(self, request: Request) -> Response:
        """List the caller's agents, newest first."""
        query = parse_query(AgentFilters, request)
        agents = server().inventory.list_agents(
            self.actor,
            _filters(query),
            order_by=query.sort_by or query.order_by,
            ascending=query.order == "asc" or query.ascending,
            limit=query.limit,
            offset=query.offset,
            after=cursor(ids.AGENT, query.after, "after"),
            before=cursor(ids.AGENT, query.before, "before"),
        )
        wanted = wanted_relationships(request.META, query.include, query.include_relationships)
        return Response(agent_states(self.actor, agents, frozenset() if query.slim else wanted))

    @extend_schema(operation_id="agents_create", request=CreateAgent)
    def post(self, request: Request) -> Response:
        """Create an agent."""
        data = parse_body(CreateAgent, request).model_dump(exclude_unset=True)
        said = initial_messages(data.pop("initial_message_sequence", None))
        agent = server().inventory.create_agent(self.actor, data)
        # Clients look for its message_ids.
        conversation = server().sessions.default_conversation(self.actor, agent)
        if said:
            begin_with(conversation, said)
        return Response(agent_states(self.actor, [agent], with_context=True)[0])


class AgentCountView(ApiView):
    """How many agents there are."""

    query_model = AgentFilters

    @extend_schema(operation_id="agents_count")
    def get(self, request: Request) -> Response:
        """Count the caller's agents, with the filters of the list."""
        query = parse_query(AgentFilters, request)
        return Response(filter_agents(self.actor, _filters(query)).count())


class AgentView(ApiView):
    """One agent."""

    query_model = AgentFilters

    @extend_schema(operation_id="agents_retrieve")
    def get(self, request: Request, agent_id: str) -> Response:
        """Return the agent."""
        agent = self.agent(agent_id)
        query = parse_query(AgentFilters, request)
        wanted = wanted_relationships(request.META, query.include, query.include_relationships)
        return Response(
            agent_states(self.actor, [take_up_edits(agent)], wanted, with_context=True)[0]
        )

    @extend_schema(operation_id="agents_update", request=UpdateAgent)
    def patch(self, request: Request, agent_id: str) -> Response:
        """Change what the body names; null clears."""
        data = parse_body(UpdateAgent, request).model_dump(exclude_unset=True)
        agent = server().inventory.update_agent(self.actor, self.agent(agent_id), data)
        return Response(agent_states(self.actor, [agent], with_context=True)[0])

    @extend_schema(operation_id="agents_delete")
    def delete(self, request: Request, agent_id: str) -> Response:
        """Delete the agent with its conversations and memory."""
        agent = self.agent(agent_id)
        server().inventory.delete_agent(self.actor, agent)
        return Response(
            {
                "message": f"Agent id={ids.make(ids.AGENT, parse_id(ids.AGENT, agent_id))} successfully deleted"
            }
        )


def _state_with_blocks(view: ApiView, agent: Agent) -> Response:
    return Response(agent_states(view.actor, [agent], with_context=True)[0])


class CoreMemoryView(ApiView):
    """What an agent has always before its eyes."""

    @extend_schema()
    def get(self, request: Request, agent_id: str) -> Response:
        """Return the agent's memory with its blocks."""
        agent = take_up_edits(self.agent(agent_id))
        return Response(agent_states(self.actor, [agent])[0]["memory"])


class AgentBlocksView(ApiView):
    """The blocks of an agent."""

    query_model = PageQuery

    @extend_schema(operation_id="agents_blocks_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """List the blocks in the order in which the prompt shows them."""
        query = parse_query(PageQuery, request)
        agent = take_up_edits(self.agent(agent_id))
        return Response(
            [block_state(b) for b in block_services.page_of_agent(self.actor, agent, query)]
        )


class AgentBlockView(ApiView):
    """One block of an agent, by label."""

    def _block(self, agent_id: str, label: str) -> Block:
        place = bad_text_place(label, "label")
        if place:
            raise failed("string_unicode", ("path", "label"), f"Remove it and send again. {place}")
        return block_services.block_of_agent(take_up_edits(self.agent(agent_id)), label)

    @extend_schema(operation_id="agents_blocks_retrieve")
    def get(self, request: Request, agent_id: str, label: str) -> Response:
        """Return the block."""
        return Response(block_state(self._block(agent_id, label)))

    @extend_schema(operation_id="agents_blocks_update", request=BlockUpdate)
    def patch(self, request: Request, agent_id: str, label: str) -> Response:
        """Change the block; limits and read_only hold."""
        changes = parse_body(BlockUpdate, request).model_dump(exclude_unset=True)
        block = self._block(agent_id, label)
        return Response(block_state(block_services.update_block(self.actor, block, changes)))


class AgentBlockAttachView(ApiView):
    """Attach a block."""

    @extend_schema(operation_id="agents_blocks_attach")
    def patch(self, request: Request, agent_id: str, block_id: str) -> Response:
        """Attach the block; twice is once."""
        agent = self.agent(agent_id)
        block_services.attach_block(agent, get_block(self.actor, parse_id(ids.BLOCK, block_id)))
        return _state_with_blocks(self, agent)


class AgentBlockDetachView(ApiView):
    """Detach a block."""

    @extend_schema(operation_id="agents_blocks_detach")
    def patch(self, request: Request, agent_id: str, block_id: str) -> Response:
        """Detach the block; the block itself stays."""
        agent = self.agent(agent_id)
        block_services.detach_block(agent, get_block(self.actor, parse_id(ids.BLOCK, block_id)))
        return _state_with_blocks(self, agent)
