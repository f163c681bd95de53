"""Bodies and queries of the tools' routes (contract letta-api §7, §13)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field, StringConstraints

from conversations.api.bodies import Body, JSONObject, LongText, ShortText
from souveraine.api.pagination import Offset, PageQuery

Source = Annotated[str, StringConstraints(max_length=1_000_000)]
ReturnLimit = Annotated[int, Field(gt=0, le=10_000_000)]


class PackageRequirement(Body):
    """PipRequirement and NpmRequirement."""

    name: ShortText
    version: ShortText | None = None


class ToolOptions(Body):
    """What creating and changing share."""

    description: LongText | None = None
    tags: list[ShortText] | None = None
    source_type: Annotated[str, StringConstraints(max_length=20)] | None = None
    json_schema: JSONObject | None = None
    args_json_schema: JSONObject | None = None
    return_char_limit: ReturnLimit | None = None
    pip_requirements: list[PackageRequirement] | None = None
    npm_requirements: list[PackageRequirement] | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None


class ToolCreate(ToolOptions):
    """ToolCreate: the schema is derived from source and docstring unless one is given."""

    source_code: Source


class ToolUpdate(ToolOptions):
    """ToolUpdate: what is left out stays."""

    source_code: Source | None = None
    metadata: JSONObject | None = Field(
        default=None, validation_alias=AliasChoices("metadata_", "metadata")
    )


class ToolFilters(PageQuery):
    """Query of the tools list."""

    order_by: Literal["created_at"] = "created_at"
    offset: Offset = 0
    name: str | None = None
    names: list[str] | None = None
    tool_ids: list[str] | None = None
    search: str | None = None
    tool_types: list[str] | None = None
    exclude_tool_types: list[str] | None = None
    return_only_letta_tools: bool = False
    exclude_letta_tools: bool = False


class AgentToolFilters(PageQuery):
    """Query of an agent's tools; the old server's default is 10."""

    order_by: Literal["created_at"] = "created_at"
    limit: int = Field(default=10, ge=0, le=1000)


class ToolSearch(Body):
    """ToolSearchRequest."""

    query: Annotated[str, StringConstraints(max_length=10_000)] | None = None
    search_mode: Literal["vector", "fts", "hybrid"] = "hybrid"
    tool_types: list[ShortText] | None = None
    tags: list[ShortText] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 50


class CodeInput(Body):
    """CodeInput."""

    code: Source
    source_type: ShortText | None = "python"


class ToolArguments(Body):
    """ToolExecuteRequest."""

    args: JSONObject = Field(default_factory=dict)


class ToolRunFromSource(ToolOptions):
    """ToolRunFromSource."""

    source_code: Source
    args: JSONObject
    env_vars: dict[str, str] | None = None
    name: ShortText | None = None
