"""Writes of archives and passages. Texts are kept first; their vectors may come later (`services.embedding`)."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.actor import Actor
from agents.archive_selectors import archives_of_agent
from agents.models import Agent, AgentArchive, Archive, File, Passage, PassageTag
from agents.providers import embeddings
from agents.services.embedding import ask_for_vectors
from souveraine.errors import NotFound, SouveraineError

logger = logging.getLogger(__name__)
INSERT_SECONDS = 10.0  # a caller who inserts waits so long for the vectors; then they come later
DELETED_AT_ONCE = 1000
PAUSE_SECONDS = 0.03  # between deletions, for those who wait
MAX_AT_ONCE = 64  # texts that are embedded while the caller waits


@dataclass(frozen=True)
class NewPassage:
    """A passage to insert."""

    text: str
    tags: Sequence[str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    file: File | None = None


def create_archive(actor: Actor, data: dict[str, Any]) -> Archive:
    """Create an archive out of name, description, embedding, embedding_config, metadata.

    Raises NotFound, InvalidArgument or Unavailable when the embedding model is not there. Without one it is
    SOUVERAINE_EMBEDDING_MODEL, if that is set; else passages are found by their words.
    """
    handle = embedding_handle(data) or settings.CONFIG["SOUVERAINE_EMBEDDING_MODEL"]
    config = embeddings.full_config(handle) if handle else None
    return Archive.objects.create(
        owner=actor.user,
        created_by=actor.user_id,
        last_updated_by=actor.user_id,
        name=data["name"],
        description=data.get("description"),
        metadata=data.get("metadata"),
        embedding=config["handle"] if config else "",
        embedding_config=config,
    )


def embedding_handle(data: dict[str, Any]) -> str:
    """Return the handle that a body names: `embedding`, else what its embedding_config says; "" without."""
    config = data.get("embedding_config") or {}
    if data.get("embedding") or config.get("handle"):
        return str(data.get("embedding") or config["handle"])
    if config.get("embedding_endpoint_type") and config.get("embedding_model"):
        return f"{config['embedding_endpoint_type']}/{config['embedding_model']}"
    return ""


def update_archive(actor: Actor, archive: Archive, data: dict[str, Any]) -> Archive:
    """Change name and description. Raises NotFound when it was deleted meanwhile."""
    for name in ("name", "description"):
        if name in data:
            setattr(archive, name, data[name])
    archive.updated_at, archive.last_updated_by = timezone.now(), actor.user_id
    fields = ("name", "description", "updated_at", "last_updated_by")
    changes = {name: getattr(archive, name) for name in fields}
    if not Archive.objects.filter(pk=archive.pk).update(**changes):
        raise _gone(archive)
    return archive


def _gone(archive: Archive) -> NotFound:
    return NotFound(f"Archive with id 'archive-{archive.pk}' not found")


def delete_archive(archive: Archive) -> None:
    """Delete the archive with its passages, and detach it everywhere."""
    clear_archive(archive)
    with transaction.atomic():
        # What is inserted or attached meanwhile is deleted as well, or finds no archive.
        Archive.objects.select_for_update().filter(pk=archive.pk).first()
        archive.delete()


def clear_archive(archive: Archive) -> None:
    """Delete the passages, many of them in short transactions: one would hold up all other writers for seconds."""
    rows = Passage.objects.filter(archive=archive).order_by("row")
    while (
        len(batch := list(rows.values_list("row", flat=True)[:DELETED_AT_ONCE])) == DELETED_AT_ONCE
    ):
        Passage.objects.filter(row__in=batch).delete()
        time.sleep(PAUSE_SECONDS)


def attach_archive(agent: Agent, archive: Archive) -> None:
    """Attach; again changes nothing."""
    AgentArchive.objects.get_or_create(agent=agent, archive=archive)


def detach_archive(agent: Agent, archive: Archive) -> None:
    """Detach; the archive stays, also the agent's own one. Again changes nothing."""
    AgentArchive.objects.filter(agent=agent, archive=archive).delete()


def archive_for_insert(actor: Actor, agent: Agent) -> Archive:
    """Return the archive that the agent's passages go to: the first attached one, else its own, made now.

    Safe to call twice at once. Raises NotFound when the agent was deleted meanwhile.
    """
    attached = archives_of_agent(agent)
    if attached:
        return attached[0]
    config = _config_of_agent(agent)
    try:
        with transaction.atomic():
            archive = Archive.objects.create(
                owner=actor.user,
                created_by=actor.user_id,
                last_updated_by=actor.user_id,
                name=f"{agent.name}'s Archive"[:255],
                description="Default archive created automatically",
                embedding=config["handle"] if config else "",
                embedding_config=config,
            )
            AgentArchive.objects.create(agent=agent, archive=archive, is_own=True)
    except IntegrityError:  # another call was first
        attached = archives_of_agent(agent)
        if not attached:
            raise NotFound(f"Agent with id 'agent-{agent.pk}' not found") from None
        return attached[0]
    return archive


def _config_of_agent(agent: Agent) -> dict[str, Any] | None:
    """Return what is known of the agent's embedding model if it is there, else of SOUVERAINE_EMBEDDING_MODEL's.

    Clients name one for every agent, whether the server has it or not, so a missing one is no error here.
    """
    for handle in (agent.embedding, settings.CONFIG["SOUVERAINE_EMBEDDING_MODEL"]):
        if handle:
            try:
                return embeddings.full_config(handle)
            except SouveraineError as exc:
                logger.info("event=no_embedding_model model=%s error=%s", handle, exc.text)
    return None


def insert_passages(
    actor: Actor,
    archive: Archive,
    new: Sequence[NewPassage],
    *,
    guard: Callable[[], None] = lambda: None,
) -> list[Passage]:
    """Insert passages, all or none; with vectors when the archive's model gives them in time.

    What has none yet is embedded by a job. `guard` may refuse inside the transaction.
    Raises NotFound when the archive has gone meanwhile.
    """
    vectors = _vectors(archive, [entry.text for entry in new])
    now = timezone.now()
    passages = [
        Passage(
            archive=archive,
            file=entry.file,
            created_by=actor.user_id,
            created_at=entry.created_at or now,
            updated_at=now,
            text=entry.text,
            tags=None if entry.tags is None else list(dict.fromkeys(entry.tags)),
            metadata=entry.metadata,
            vector=vector,
            vector_model=archive.embedding if vector else "",
        )
        for entry, vector in zip(new, vectors, strict=True)
    ]
    with transaction.atomic():
        guard()
        now_embedding = (
            Archive.objects.select_for_update()
            .filter(pk=archive.pk)
            .values_list("embedding", flat=True)
            .first()
        )
        if now_embedding is None:
            raise _gone(archive)
        Passage.objects.bulk_create(passages)
        PassageTag.objects.bulk_create(
            PassageTag(passage=passage, tag=tag)
            for passage in passages
            for tag in passage.tags or ()
        )
        if now_embedding and (None in vectors or now_embedding != archive.embedding):
            ask_for_vectors(actor, archive)
    return passages


def _vectors(archive: Archive, texts: Sequence[str]) -> Sequence[bytes | None]:
    if not archive.embedding or len(texts) > MAX_AT_ONCE:
        return [None] * len(texts)
    try:
        return embeddings.embed(archive.embedding, texts, timeout_seconds=INSERT_SECONDS)
    except SouveraineError as exc:
        logger.warning(
            "event=passages_not_embedded archive_id=archive-%s error=%s", archive.pk, exc.text
        )
        return [None] * len(texts)


def delete_passage(archives: Sequence[Archive], passage_id: uuid.UUID) -> bool:
    """Delete a passage of the archives; tells whether there was one."""
    deleted, _ = Passage.objects.filter(
        archive__in=[a.pk for a in archives], id=passage_id
    ).delete()
    return deleted > 0


def delete_own_archive(agent: Agent) -> None:
    """Delete the archive that was made for the agent, unless others have it too. For the agent's deletion."""
    own = Archive.objects.filter(agent_rows__agent=agent, agent_rows__is_own=True)
    shared = AgentArchive.objects.exclude(agent=agent).values("archive")
    Archive.objects.filter(
        pk__in=list(own.exclude(pk__in=shared).values_list("pk", flat=True))
    ).delete()
