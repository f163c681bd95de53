"""`/v1/groups` and `/v1/tags`. Groups are kept and shown; they do not run: each agent answers for itself."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.group_selectors import (
    get_group,
    groups_of,
    list_groups,
    list_tags,
    named_agents,
    named_blocks,
)
from agents.models import Agent, Group
from agents.selectors import get_block
from agents.services import groups as services
from conversations.api.base import ApiView, cursor
from conversations.api.identity_bodies import (
    AgentGroupFilters,
    GroupCreate,
    GroupFilters,
    GroupUpdate,
    ManagerConfig,
    TagFilters,
)
from conversations.wire.groups import MANAGERS, group_states
from souveraine import ids
from souveraine.api.validation import failed, parse_body, parse_id, parse_query


class GroupsPage(ApiView):
    """What the views of groups share."""

    def group(self, text: str) -> Group:
        """Return the group of a path id. Raises ValidationFailed or NotFound."""
        return get_group(self.actor, parse_id(ids.GROUP, text))

    def page(self, query: GroupFilters, agent: Agent | None) -> Response:
        """Answer with one page."""
        found = list_groups(
            self.actor,
            {**query.model_dump(), "agent": agent},
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.GROUP, query.after, "after"),
            before=cursor(ids.GROUP, query.before, "before"),
        )
        return Response(group_states(found))

    def chief(self, config: ManagerConfig | None) -> Agent | None:
        """Return the managing agent. Raises ValidationFailed when this type of group must have one."""
        if config is None:
            return None
        if config.manager_agent_id:
            return named_agents(self.actor, [config.manager_agent_id])[0]
        if "manager_agent_id" in MANAGERS[config.manager_type]:
            place = ("body", "manager_config", config.manager_type, "manager_agent_id")
            raise failed("missing", place, "Field required")
        return None


class GroupsView(GroupsPage):
    """The collection."""

    query_model = GroupFilters

    @extend_schema(operation_id="groups_list")
    def get(self, request: Request) -> Response:
        """List the caller's groups, oldest first."""
        return self.page(parse_query(GroupFilters, request), None)

    @extend_schema(operation_id="groups_create", request=GroupCreate)
    def post(self, request: Request) -> Response:
        """Create a group."""
        body = parse_body(GroupCreate, request)
        group = services.create_group(
            self.actor,
            named_agents(self.actor, body.agent_ids),
            description=body.description,
            manager=body.manager_config.model_dump(),
            manager_agent=self.chief(body.manager_config),
            shared_blocks=named_blocks(self.actor, body.shared_block_ids or []),
            project_id=body.project_id,
            hidden=body.hidden,
        )
        return Response(group_states([group])[0])


class GroupCountView(ApiView):
    """How many there are."""

    @extend_schema(operation_id="groups_count")
    def get(self, request: Request) -> Response:
        """Count the caller's groups."""
        return Response(groups_of(self.actor).count())


class GroupView(GroupsPage):
    """One group."""

    @extend_schema(operation_id="groups_retrieve")
    def get(self, request: Request, group_id: str) -> Response:
        """Return the group."""
        return Response(group_states([self.group(group_id)])[0])

    @extend_schema(operation_id="groups_update", request=GroupUpdate)
    def patch(self, request: Request, group_id: str) -> Response:
        """Change what the body names; lists replace."""
        group = self.group(group_id)
        body = parse_body(GroupUpdate, request)
        given: dict[str, Any] = body.model_dump(
            exclude_unset=True, include={"description", "project_id"}
        )
        agents, shared = body.agent_ids, body.shared_block_ids
        changed = services.update_group(
            group,
            given,
            manager=body.manager_config.model_dump() if body.manager_config else None,
            manager_agent=self.chief(body.manager_config),
            agents=None if agents is None else named_agents(self.actor, agents),
            shared_blocks=None if shared is None else named_blocks(self.actor, shared),
        )
        return Response(group_states([changed])[0])

    @extend_schema(operation_id="groups_delete")
    def delete(self, request: Request, group_id: str) -> Response:
        """Delete the group; its agents stay."""
        services.delete_group(self.group(group_id))
        return Response(None)


class GroupBlockView(GroupsPage):
    """A block that a group shares."""

    @extend_schema(operation_id="groups_blocks_attach")
    def patch(self, request: Request, group_id: str, block_id: str) -> Response:
        """Attach it, twice is once; the answer is null, as on the old server."""
        block = get_block(self.actor, parse_id(ids.BLOCK, block_id))
        self.group(group_id).shared_blocks.add(block)
        return Response(None)


class GroupBlockDetachView(GroupsPage):
    """A block that a group shares, no longer."""

    @extend_schema(operation_id="groups_blocks_detach")
    def patch(self, request: Request, group_id: str, block_id: str) -> Response:
        """Detach it, twice is once; the answer is null, as on the old server."""
        block = get_block(self.actor, parse_id(ids.BLOCK, block_id))
        self.group(group_id).shared_blocks.remove(block)
        return Response(None)


class AgentGroupsView(GroupsPage):
    """The groups of an agent."""

    query_model = AgentGroupFilters

    @extend_schema(operation_id="agents_groups_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """List the groups that the agent manages or belongs to."""
        agent = self.agent(agent_id)
        return self.page(parse_query(AgentGroupFilters, request), agent)


class TagsView(ApiView):
    """The tags of all agents."""

    query_model = TagFilters

    @extend_schema(operation_id="tags_list")
    def get(self, request: Request) -> Response:
        """List the tags, each once, by name."""
        query = parse_query(TagFilters, request)
        return Response(
            list_tags(
                self.actor,
                ascending=query.order == "asc",
                limit=query.limit,
                after=query.after,
                before=query.before,
                containing=query.query_text or query.name,
            )
        )
