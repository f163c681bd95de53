"""Bodies and queries of folders and files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from conversations.api.bodies import Body, Handle, JSONObject, LongText
from souveraine.api.pagination import MAX_LIMIT, PageQuery

Name = Annotated[str, StringConstraints(min_length=1, max_length=255, strip_whitespace=True)]


class FolderCreate(Body):
    """SourceCreate. `embedding` is a handle; null: files are searched by their words."""

    name: Name
    description: LongText | None = None
    instructions: LongText | None = None
    metadata: JSONObject | None = None
    embedding: Handle | None = None
    embedding_chunk_size: int | None = None
    embedding_config: JSONObject | None = None


class FolderUpdate(Body):
    """SourceUpdate; null means unchanged. The embedding model stays: all passages are made with it."""

    name: Name | None = None
    description: LongText | None = None
    instructions: LongText | None = None
    metadata: JSONObject | None = None


class FolderFilters(PageQuery):
    """Query of the folders list."""

    order: Literal["asc", "desc"] = "asc"
    name: str | None = None


class FolderPages(PageQuery):
    """Query of an agent's folders and of a folder's passages."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)


class StatsQuery(BaseModel):
    """Query of the folders' statistics."""

    include_detailed_per_source_metadata: bool = False


class FileFilters(PageQuery):
    """Query of a folder's files."""

    limit: int = Field(default=MAX_LIMIT, ge=0, le=MAX_LIMIT)
    include_content: bool = False


class ContentQuery(BaseModel):
    """Query of one file."""

    include_content: bool = False


class UploadQuery(BaseModel):
    """Query of an upload. `name` replaces the file's own name."""

    duplicate_handling: Literal["skip", "error", "suffix", "replace"] = "suffix"
    name: str | None = None


class AgentFileFilters(PageQuery):
    """Query of an agent's files; `cursor` is an older name of `after`."""

    limit: int = Field(default=100, ge=0, le=MAX_LIMIT)
    cursor: str | None = None
    is_open: bool | None = None
