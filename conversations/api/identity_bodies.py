"""Bodies and queries of identities, groups and tags (contract letta-api §12, §13)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, RootModel, StringConstraints

from conversations.api.bodies import Body, LongText, ShortText
from souveraine.api.pagination import PageQuery

Key = Annotated[str, StringConstraints(min_length=1, max_length=255)]
IdentityType = Literal["org", "user", "other"]
IdList = Annotated[list[ShortText], Field(max_length=1000)]
ManagerType = Literal["round_robin", "supervisor", "dynamic", "sleeptime", "voice_sleeptime"]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class IdentityProperty(Body):
    """One property of an identity."""

    key: Key
    value: str | bool | int | float | dict[str, Any]
    type: Literal["string", "number", "boolean", "json"]


class Properties(RootModel[Annotated[list[IdentityProperty], Field(max_length=1000)]]):
    """The body of PUT …/properties: a list."""


class IdentityFields(Body):
    """What create, upsert and update share."""

    agent_ids: IdList | None = None
    block_ids: IdList | None = None
    properties: Annotated[list[IdentityProperty], Field(max_length=1000)] | None = None


class IdentityCreate(IdentityFields):
    """IdentityCreate and IdentityUpsert."""

    identifier_key: Key
    name: Key
    identity_type: IdentityType
    project_id: ShortText | None = None


class IdentityUpdate(IdentityFields):
    """IdentityUpdate."""

    identifier_key: Key | None = None
    name: Key | None = None
    identity_type: IdentityType | None = None


class IdentityFilters(PageQuery):
    """Query of the identities list."""

    name: str | None = None
    project_id: str | None = None
    identifier_key: str | None = None
    identity_type: IdentityType | None = None


class ManagerConfig(Body):
    """The manager of a group: its type and that type's fields."""

    manager_type: ManagerType = "round_robin"
    manager_agent_id: ShortText | None = None
    termination_token: ShortText | None = None
    max_turns: Count | None = None
    sleeptime_agent_frequency: Count | None = None
    max_message_buffer_length: Count | None = None
    min_message_buffer_length: Count | None = None


class GroupCreate(Body):
    """GroupCreate."""

    agent_ids: IdList
    description: LongText
    manager_config: ManagerConfig = ManagerConfig()
    project_id: ShortText | None = None
    shared_block_ids: IdList | None = None
    hidden: bool | None = None


class GroupUpdate(Body):
    """GroupUpdate."""

    agent_ids: IdList | None = None
    description: LongText | None = None
    manager_config: ManagerConfig | None = None
    project_id: ShortText | None = None
    shared_block_ids: IdList | None = None


class GroupFilters(PageQuery):
    """Query of the groups list."""

    manager_type: ManagerType | Literal["swarm"] | None = None
    project_id: str | None = None
    order: Literal["asc", "desc"] = "asc"


class AgentGroupFilters(GroupFilters):
    """Query of the groups of an agent."""

    limit: int = Field(default=100, ge=0, le=1000)
    order: Literal["asc", "desc"] = "desc"


class TagFilters(PageQuery):
    """Query of the tags list; `name` is an older name of `query_text`."""

    order: Literal["asc", "desc"] = "asc"
    query_text: str | None = None
    name: str | None = None
