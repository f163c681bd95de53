"""`/v1/blocks`: blocks on their own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Agent, Block
from agents.selectors import agents_of, filter_blocks, get_agent, get_block, list_blocks
from agents.services import blocks as block_services
from agents.services.memory import take_up_edits
from conversations.api.base import ApiView, cursor
from conversations.api.bodies import BlockUpdate, CreateBlock
from conversations.wire.agents import agent_states, wanted_relationships
from conversations.wire.states import block_state
from souveraine import ids
from souveraine.api.pagination import Offset, PageQuery, page
from souveraine.api.validation import parse_body, parse_id, parse_query

Count = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class BlockFilters(PageQuery):
    """Query of the blocks list; its default order is asc, unlike the other lists."""

    order: Literal["asc", "desc"] = "asc"
    offset: Offset = 0
    label: str | None = None
    name: str | None = None
    templates_only: bool = False
    project_id: str | None = None
    tags: list[str] | None = None
    match_all_tags: bool = False
    connected_to_agents_count_gt: Count | None = None
    connected_to_agents_count_lt: Count | None = None
    connected_to_agents_count_eq: list[Count] | None = None
    identity_id: str | None = None
    identifier_keys: list[str] | None = None
    label_search: str | None = None
    value_search: str | None = None
    description_search: str | None = None


def _filters(request: Request) -> BlockFilters:
    query = parse_query(BlockFilters, request)
    if query.identity_id:
        parse_id(ids.IDENTITY, query.identity_id, "identity_id", source="query")
    return query


class BlocksView(ApiView):
    """The collection."""

    query_model = BlockFilters

    @extend_schema(operation_id="blocks_list")
    def get(self, request: Request) -> Response:
        """List the caller's blocks, oldest first."""
        query = _filters(request)
        found = list_blocks(
            self.actor,
            query.model_dump(),
            ascending=query.order == "asc",
            limit=query.limit,
            offset=query.offset,
            after=cursor(ids.BLOCK, query.after, "after"),
            before=cursor(ids.BLOCK, query.before, "before"),
        )
        return Response([block_state(b) for b in found])

    @extend_schema(operation_id="blocks_create", request=CreateBlock)
    def post(self, request: Request) -> Response:
        """Create a block that no agent has yet."""
        data = parse_body(CreateBlock, request).model_dump(exclude_unset=True)
        return Response(block_state(block_services.create_block(self.actor, _with_config(data))))


CONFIG_KEYS = (
    "project_id",
    "template_name",
    "is_template",
    "template_id",
    "base_template_id",
    "deployment_id",
    "entity_id",
    "preserve_on_migration",
)


def _with_config(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "config": {key: data[key] for key in CONFIG_KEYS if data.get(key) is not None}}


class BlockCountView(ApiView):
    """How many blocks there are."""

    query_model = BlockFilters

    @extend_schema(operation_id="blocks_count")
    def get(self, request: Request) -> Response:
        """Count the caller's blocks, with the filters of the list."""
        return Response(filter_blocks(self.actor, _filters(request).model_dump()).count())


def fresh(view: ApiView, block_id: str) -> Block:
    """Return a block brought up to its file. Raises NotFound."""
    block = get_block(view.actor, parse_id(ids.BLOCK, block_id))
    agents = list(Agent.objects.filter(block_rows__block=block)[:2])
    if len(agents) != 1:
        return block
    take_up_edits(agents[0])
    return get_block(view.actor, block.pk)


class BlockView(ApiView):
    """One block."""

    @extend_schema(operation_id="blocks_retrieve")
    def get(self, request: Request, block_id: str) -> Response:
        """Return the block."""
        return Response(block_state(fresh(self, block_id)))

    @extend_schema(operation_id="blocks_update", request=BlockUpdate)
    def patch(self, request: Request, block_id: str) -> Response:
        """Change the block; limits and read_only hold."""
        changes = parse_body(BlockUpdate, request).model_dump(exclude_unset=True)
        return Response(
            block_state(block_services.update_block(self.actor, fresh(self, block_id), changes))
        )

    @extend_schema(operation_id="blocks_delete")
    def delete(self, request: Request, block_id: str) -> Response:
        """Delete the block and detach it everywhere."""
        block_services.delete_block(get_block(self.actor, parse_id(ids.BLOCK, block_id)))
        return Response(None)


class BlockAgentsQuery(PageQuery):
    """Query of a block's agents."""

    include: list[str] | None = None


class BlockAgentsView(ApiView):
    """Who has a block."""

    query_model = BlockAgentsQuery

    @extend_schema(operation_id="blocks_agents_list")
    def get(self, request: Request, block_id: str) -> Response:
        """List the agents that have the block, newest first."""
        block = get_block(self.actor, parse_id(ids.BLOCK, block_id))
        query = parse_query(BlockAgentsQuery, request)
        after = cursor(ids.AGENT, query.after, "after")
        before = cursor(ids.AGENT, query.before, "before")
        agents = page(
            agents_of(self.actor).filter(block_rows__block=block),
            field="created_at",
            ascending=query.order == "asc",
            limit=query.limit,
            after=get_agent(self.actor, after) if after else None,
            before=get_agent(self.actor, before) if before else None,
        )
        wanted = wanted_relationships(request.META, query.include, None)
        return Response(agent_states(self.actor, agents, wanted))
