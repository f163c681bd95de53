"""Bodies and queries of archives, passages and their search."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from agents.archive_selectors import PassageQuery
from conversations.api.bodies import Body, Handle, JSONObject, LongText, ShortText
from souveraine.api.pagination import MAX_LIMIT, PageQuery
from souveraine.api.validation import UtcMoment

Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]
PassageText = Annotated[str, StringConstraints(min_length=1, max_length=1_000_000)]
Tags = Annotated[list[ShortText], Field(max_length=100)]
Query = Annotated[str, StringConstraints(max_length=10_000)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
TagMatch = Literal["any", "all"]


class ArchiveCreate(Body):
    """An archive to create. `embedding` is a handle; null: passages are found by their words."""

    name: Name
    description: LongText | None = None
    embedding: Handle | None = None
    embedding_config: JSONObject | None = None
    metadata: JSONObject | None = None


class ArchiveUpdate(Body):
    """Fields of an archive to change. Another `embedding` embeds all passages anew; "" is none."""

    name: Name | None = None
    description: LongText | None = None
    embedding: Handle | None = None


class CreateArchivalMemory(Body):
    """A passage for an agent."""

    text: PassageText
    tags: Tags | None = None
    created_at: UtcMoment | None = None


class PassageCreate(CreateArchivalMemory):
    """A passage for an archive."""

    metadata: JSONObject | None = None


class PassageBatchCreate(Body):
    """Passages, of which all or none are kept."""

    passages: Annotated[list[PassageCreate], Field(max_length=1000)]


class ArchiveFilters(PageQuery):
    """Query of the archives list."""

    name: str | None = None
    agent_id: str | None = None


class ArchiveAgentsQuery(PageQuery):
    """Query of an archive's agents."""

    include: list[str] | None = None


class PassageFilters(BaseModel):
    """Query of an agent's passages."""

    before: str | None = None
    after: str | None = None
    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)
    search: Query | None = None
    ascending: bool = True


class ArchivalSearch(BaseModel):
    """Query of the search in an agent's passages."""

    query: Query
    tags: list[ShortText] | None = None
    tag_match_mode: TagMatch = "any"
    top_k: Limit | None = None
    start_datetime: UtcMoment | None = None
    end_datetime: UtcMoment | None = None

    def wanted(self, default_limit: int) -> PassageQuery:
        """Return it for the selector."""
        return PassageQuery(
            query=self.query,
            tags=self.tags or (),
            needs_all_tags=self.tag_match_mode == "all",
            since=self.start_datetime,
            until=self.end_datetime,
            limit=self.top_k or default_limit,
        )


class PassageSearch(Body):
    """A search in an archive, in those of an agent, or in all of the caller's."""

    query: Query | None = None
    agent_id: str | None = None
    archive_id: str | None = None
    tags: Tags | None = None
    tag_match_mode: TagMatch = "any"
    limit: Limit = 50
    start_date: UtcMoment | None = None
    end_date: UtcMoment | None = None

    def wanted(self) -> PassageQuery:
        """Return it for the selector."""
        return PassageQuery(
            query=self.query or "",
            tags=self.tags or (),
            needs_all_tags=self.tag_match_mode == "all",
            since=self.start_date,
            until=self.end_date,
            limit=self.limit,
        )
