"""Archives, passages and what a search found, as Letta's clients read them."""

from __future__ import annotations

from typing import Any

from agents.archive_selectors import FoundPassage
from agents.models import Archive, Passage
from agents.providers import embeddings
from agents.providers.base import EmbeddingModel
from agents.services.open_files import file_label
from conversations.wire.states import ORGANIZATION_ID, moment, user_id
from souveraine import ids

JSON = dict[str, Any]


def embedding_model_state(model: EmbeddingModel) -> JSON:
    """Return Letta's EmbeddingModel; `embedding_dim` 0: the provider tells it only with the first vector."""
    return {
        "name": model.name,
        "display_name": model.name,
        "provider_type": model.provider_type,
        "provider_name": model.provider_name,
        "model_type": "embedding",
        **embeddings.config_of(model, model.dimensions or 0),
    }


def archive_state(archive: Archive) -> JSON:
    """Return Letta's Archive, with our `embedding` (a handle or null) beside it."""
    return {
        "created_by_id": user_id(archive.created_by),
        "last_updated_by_id": user_id(archive.last_updated_by),
        "created_at": moment(archive.created_at),
        "updated_at": moment(archive.updated_at),
        "name": archive.name,
        "description": archive.description,
        "organization_id": ORGANIZATION_ID,
        "vector_db_provider": "native",
        "embedding_config": _config(archive),
        "metadata": archive.metadata,
        "id": ids.make(ids.ARCHIVE, archive.pk),
        "embedding": archive.embedding or None,
    }


def _config(archive: Archive) -> JSON | None:
    return archive.embedding_config if archive.embedding else None


def passage_state(passage: Passage) -> JSON:
    """Return Letta's Passage; `embedding` is null as long as there is none."""
    archive = passage.archive
    return {
        "created_by_id": user_id(passage.created_by),
        "last_updated_by_id": user_id(passage.created_by),
        "created_at": moment(passage.created_at),
        "updated_at": moment(passage.updated_at),
        "is_deleted": False,
        "organization_id": ORGANIZATION_ID,
        "archive_id": None if passage.file else ids.make(ids.ARCHIVE, passage.archive_id),
        "source_id": ids.make(ids.FOLDER, passage.file.folder_id) if passage.file else None,
        "file_id": ids.make(ids.FILE, passage.file_id),
        "file_name": file_label(passage.file) if passage.file else None,
        "metadata": passage.metadata,
        "tags": passage.tags,
        "id": ids.make(ids.PASSAGE, passage.id),
        "text": passage.text,
        "embedding": embeddings.unpacked(bytes(passage.vector)) if passage.vector else None,
        "embedding_config": _config(archive) if passage.vector else None,
    }


def archival_result(found: FoundPassage) -> JSON:
    """Return ArchivalMemorySearchResult."""
    passage = found.passage
    return {
        "id": ids.make(ids.PASSAGE, passage.id),
        "timestamp": passage.created_at.isoformat(timespec="microseconds"),
        "content": passage.text,
        "tags": passage.tags or [],
    }


def passage_result(found: FoundPassage) -> JSON:
    """Return PassageSearchResult."""
    return {
        "passage": passage_state(found.passage),
        "score": round(found.score, 6),
        "metadata": {"fts_rank": None, "vector_rank": None, **found.ranks},
    }
