"""`/v1/identities`, and their attachment to agents and blocks."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.group_selectors import (
    get_identity,
    identities_of,
    list_identities,
    named_agents,
    named_blocks,
)
from agents.models import Identity
from agents.selectors import get_block, list_agents, list_blocks
from agents.services import identities as services
from conversations.api.agents import AgentFilters
from conversations.api.base import ApiView, cursor
from conversations.api.identity_bodies import (
    IdentityCreate,
    IdentityFields,
    IdentityFilters,
    IdentityUpdate,
    Properties,
)
from conversations.wire.agents import agent_states, wanted_relationships
from conversations.wire.groups import identity_states
from conversations.wire.states import block_state
from souveraine import ids
from souveraine.api.pagination import PageQuery
from souveraine.api.validation import parse_body, parse_id, parse_query


class IdentityView(ApiView):
    """What the views of identities share."""

    def identity(self, text: str) -> Identity:
        """Return the identity of a path id. Raises ValidationFailed or NotFound."""
        return get_identity(self.actor, parse_id(ids.IDENTITY, text))

    def parts(self, body: IdentityFields) -> dict[str, Any]:
        """Return the arguments of the services. Raises NotFound for agents and blocks that are not there."""
        given = (body.agent_ids, body.block_ids)
        return {
            "data": body.model_dump(exclude_unset=True),
            "agents": None if given[0] is None else named_agents(self.actor, given[0]),
            "blocks": None if given[1] is None else named_blocks(self.actor, given[1]),
        }


class IdentitiesView(IdentityView):
    """The collection."""

    query_model = IdentityFilters

    @extend_schema(operation_id="identities_list")
    def get(self, request: Request) -> Response:
        """List the caller's identities, newest first."""
        query = parse_query(IdentityFilters, request)
        found = list_identities(
            self.actor,
            query.model_dump(),
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.IDENTITY, query.after, "after"),
            before=cursor(ids.IDENTITY, query.before, "before"),
        )
        return Response(identity_states(found))

    @extend_schema(operation_id="identities_create", request=IdentityCreate)
    def post(self, request: Request) -> Response:
        """Create an identity; 409 when the key is taken."""
        parts = self.parts(parse_body(IdentityCreate, request))
        return Response(identity_states([services.create_identity(self.actor, **parts)])[0])

    @extend_schema(operation_id="identities_upsert", request=IdentityCreate)
    def put(self, request: Request) -> Response:
        """Create the identity of this key, or change it."""
        parts = self.parts(parse_body(IdentityCreate, request))
        return Response(identity_states([services.upsert_identity(self.actor, **parts)])[0])


class IdentityCountView(ApiView):
    """How many there are."""

    @extend_schema(operation_id="identities_count")
    def get(self, request: Request) -> Response:
        """Count the caller's identities."""
        return Response(identities_of(self.actor).count())


class OneIdentityView(IdentityView):
    """One identity."""

    @extend_schema(operation_id="identities_retrieve")
    def get(self, request: Request, identity_id: str) -> Response:
        """Return the identity."""
        return Response(identity_states([self.identity(identity_id)])[0])

    @extend_schema(operation_id="identities_update", request=IdentityUpdate)
    def patch(self, request: Request, identity_id: str) -> Response:
        """Change what the body names; lists replace."""
        identity = self.identity(identity_id)
        parts = self.parts(parse_body(IdentityUpdate, request))
        return Response(identity_states([services.update_identity(identity, **parts)])[0])

    @extend_schema(operation_id="identities_delete")
    def delete(self, request: Request, identity_id: str) -> Response:
        """Delete the identity; its agents and blocks stay."""
        services.delete_identity(self.identity(identity_id))
        return Response(None)


class IdentityPropertiesView(IdentityView):
    """The properties of an identity."""

    @extend_schema(operation_id="identities_properties_upsert", request=Properties)
    def put(self, request: Request, identity_id: str) -> Response:
        """Set properties by their keys; others stay."""
        properties = parse_body(Properties, request).model_dump()
        services.set_properties(self.identity(identity_id), properties)
        return Response(None)


class IdentityAgentsView(IdentityView):
    """The agents of an identity."""

    query_model = AgentFilters

    @extend_schema(operation_id="identities_agents_list")
    def get(self, request: Request, identity_id: str) -> Response:
        """List them, newest first."""
        query = parse_query(AgentFilters, request)
        found = list_agents(
            self.actor,
            {"identity_id": ids.make(ids.IDENTITY, self.identity(identity_id).pk)},
            order_by="created_at",
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.AGENT, query.after, "after"),
            before=cursor(ids.AGENT, query.before, "before"),
        )
        wanted = wanted_relationships(request.META, query.include, query.include_relationships)
        return Response(agent_states(self.actor, found, wanted))


class IdentityBlocksView(IdentityView):
    """The blocks of an identity."""

    query_model = PageQuery

    @extend_schema(operation_id="identities_blocks_list")
    def get(self, request: Request, identity_id: str) -> Response:
        """List them, newest first."""
        query = parse_query(PageQuery, request)
        found = list_blocks(
            self.actor,
            {"identity_id": ids.make(ids.IDENTITY, self.identity(identity_id).pk)},
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.BLOCK, query.after, "after"),
            before=cursor(ids.BLOCK, query.before, "before"),
        )
        return Response([block_state(block) for block in found])


class AgentIdentityView(IdentityView):
    """An identity of an agent."""

    @extend_schema(operation_id="agents_identities_attach")
    def patch(self, request: Request, agent_id: str, identity_id: str) -> Response:
        """Attach it, twice is once; the answer is null, as on the old server."""
        self.identity(identity_id).agents.add(self.agent(agent_id))
        return Response(None)


class AgentIdentityDetachView(IdentityView):
    """An identity of an agent, no longer."""

    @extend_schema(operation_id="agents_identities_detach")
    def patch(self, request: Request, agent_id: str, identity_id: str) -> Response:
        """Detach it, twice is once; the answer is null, as on the old server."""
        self.identity(identity_id).agents.remove(self.agent(agent_id))
        return Response(None)


class BlockIdentityView(IdentityView):
    """An identity of a block."""

    @extend_schema(operation_id="blocks_identities_attach")
    def patch(self, request: Request, block_id: str, identity_id: str) -> Response:
        """Attach it, twice is once, and return the block."""
        block = get_block(self.actor, parse_id(ids.BLOCK, block_id))
        self.identity(identity_id).blocks.add(block)
        return Response(block_state(block))


class BlockIdentityDetachView(IdentityView):
    """An identity of a block, no longer."""

    @extend_schema(operation_id="blocks_identities_detach")
    def patch(self, request: Request, block_id: str, identity_id: str) -> Response:
        """Detach it, twice is once, and return the block."""
        block = get_block(self.actor, parse_id(ids.BLOCK, block_id))
        self.identity(identity_id).blocks.remove(block)
        return Response(block_state(block))
