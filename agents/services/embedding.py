"""Asks for vectors of passages: a job does the work (`agents.jobs.embedding`)."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.actor import Actor
from agents.models import Archive, Job, JobStatus
from agents.providers import embeddings
from agents.services.jobs import create_job
from souveraine import ids

EMBED_ARCHIVE = "embed_archive"


def ask_for_vectors(actor: Actor, archive: Archive) -> Job:
    """Return the job that will embed what has no vector yet; one that has not begun takes this up as well."""
    waiting = Job.objects.filter(
        kind=EMBED_ARCHIVE, subject=archive.pk, status=JobStatus.CREATED
    ).first()
    return waiting or create_job(
        actor,
        EMBED_ARCHIVE,
        {"archive_id": str(archive.pk)},
        subject=archive.pk,
        metadata={"type": EMBED_ARCHIVE, "archive_id": ids.make(ids.ARCHIVE, archive.pk)},
    )


def change_model(actor: Actor, archive: Archive, handle: str) -> Job | None:
    """Change the archive's embedding model ("" = none) and return the job that embeds its passages anew.

    None when nothing changes or nothing is to be embedded. Until it is done, passages are found by their words,
    and by meaning as far as it has come. Raises NotFound, InvalidArgument or Unavailable for a model that is
    not there: then nothing is changed.
    """
    config: dict[str, Any] | None = embeddings.full_config(handle) if handle else None
    resolved = config["handle"] if config else ""
    if resolved == archive.embedding:
        return None
    with transaction.atomic():
        archive.embedding, archive.embedding_config = resolved, config
        archive.updated_at, archive.last_updated_by = timezone.now(), actor.user_id
        archive.save(
            update_fields=["embedding", "embedding_config", "updated_at", "last_updated_by"]
        )
        return ask_for_vectors(actor, archive) if resolved else None
