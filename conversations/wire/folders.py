"""Folders, files and what agents have open, as Letta's clients read them."""

from __future__ import annotations

from typing import Any

from agents.models import AgentFile, File, Folder
from agents.services.open_files import file_label
from conversations.wire.states import ORGANIZATION_ID, moment, user_id
from souveraine import ids

JSON = dict[str, Any]


def folder_state(folder: Folder) -> JSON:
    """Return Letta's Folder, which is also its Source; `embedding` is our handle or null."""
    archive = folder.archive
    return {
        "name": folder.name,
        "description": folder.description,
        "instructions": folder.instructions,
        "metadata": folder.metadata,
        "id": ids.make(ids.FOLDER, folder.pk),
        "embedding_config": archive.embedding_config if archive.embedding else None,
        "organization_id": ORGANIZATION_ID,
        "vector_db_provider": "native",
        "created_by_id": user_id(folder.created_by),
        "last_updated_by_id": user_id(folder.last_updated_by),
        "created_at": moment(folder.created_at),
        "updated_at": moment(folder.updated_at),
        "embedding": archive.embedding or None,
    }


def file_state(file: File, content: str | None = None) -> JSON:
    """Return FileMetadata; `file_path` stays null, as it would name a place on the server."""
    return {
        "source_id": ids.make(ids.FOLDER, file.folder_id),
        "file_name": file_label(file),
        "original_file_name": file.original_name,
        "file_path": None,
        "file_type": file.media_type,
        "file_size": file.size_bytes,
        "file_creation_date": file.created_at.date().isoformat(),
        "file_last_modified_date": file.created_at.date().isoformat(),
        "processing_status": file.status,
        "error_message": file.error or None,
        "total_chunks": file.total_chunks,
        "chunks_embedded": file.chunks_embedded,
        "content": content,
        "id": ids.make(ids.FILE, file.pk),
        "organization_id": ORGANIZATION_ID,
        "created_at": moment(file.created_at),
        "updated_at": moment(file.updated_at),
    }


def attachment_state(row: AgentFile) -> JSON:
    """Return AgentFileAttachment."""
    folder = row.file.folder
    return {
        "id": ids.make(ids.FILE_AGENT, row.pk),
        "file_id": ids.make(ids.FILE, row.file_id),
        "file_name": file_label(row.file),
        "folder_id": ids.make(ids.FOLDER, folder.pk),
        "folder_name": folder.name,
        "is_open": row.is_open,
        "last_accessed_at": moment(row.last_accessed_at),
        "visible_content": row.visible_content if row.is_open else None,
        "start_line": row.start_line if row.is_open else None,
        "end_line": row.end_line if row.is_open else None,
    }


def file_block_state(row: AgentFile, limit_chars: int) -> JSON:
    """Return FileBlock: an open file as the agent's memory shows it."""
    return {
        "value": (row.visible_content or "")[:limit_chars],
        "limit": limit_chars,
        "project_id": None,
        "template_name": None,
        "is_template": False,
        "template_id": None,
        "base_template_id": None,
        "deployment_id": None,
        "entity_id": None,
        "preserve_on_migration": False,
        "label": file_label(row.file),
        "read_only": True,
        "description": None,
        "metadata": {},
        "hidden": None,
        "id": f"block-{row.pk}",
        "created_by_id": None,
        "last_updated_by_id": None,
        "tags": [],
        "file_id": ids.make(ids.FILE, row.file_id),
        "source_id": ids.make(ids.FOLDER, row.file.folder_id),
        "is_open": row.is_open,
        "last_accessed_at": moment(row.last_accessed_at),
    }


def stats_state(counted: list[JSON], files: dict[Any, list[File]]) -> JSON:
    """Return OrganizationSourcesStats of folders with their counts, and their files as far as given."""
    return {
        "total_sources": len(counted),
        "total_files": sum(entry["file_count"] for entry in counted),
        "total_size": sum(entry["total_size"] for entry in counted),
        "sources": [
            {
                "source_id": ids.make(ids.FOLDER, entry["folder"].pk),
                "source_name": entry["folder"].name,
                "file_count": entry["file_count"],
                "total_size": entry["total_size"],
                "files": [
                    {
                        "file_id": ids.make(ids.FILE, file.pk),
                        "file_name": file_label(file),
                        "file_size": file.size_bytes,
                    }
                    for file in files.get(entry["folder"].pk, [])
                ],
            }
            for entry in counted
        ],
    }
