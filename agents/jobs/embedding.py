"""The job that gives an archive's passages the vectors of its model, after a change of it or a failure."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

from agents.jobs.kinds import JobContext, JobKind
from agents.models import Archive, Passage
from agents.providers import embeddings
from agents.services.embedding import EMBED_ARCHIVE
from souveraine.errors import NotFound


def waiting(archive: Archive) -> QuerySet[Passage]:
    """Return the passages that have no vector of the archive's model."""
    return Passage.objects.filter(archive=archive).filter(
        Q(vector__isnull=True) | ~Q(vector_model=archive.embedding)
    )


def embed_archive(context: JobContext) -> dict[str, Any]:
    """Embed in batches, oldest first. Begun anew it goes on where it was: what has its vector is not waiting."""
    archive_id = context.job.arguments["archive_id"]
    done, last, handle = 0, 0, ""
    while True:
        archive = Archive.objects.filter(pk=archive_id).first()
        if archive is None:
            raise NotFound(f"Archive with id 'archive-{archive_id}' not found: it was deleted.")
        if not archive.embedding:
            return {"embedded": done}
        if archive.embedding != handle:  # at the start, and when it was changed meanwhile
            handle, last = archive.embedding, 0
        rows = waiting(archive)
        context.progress(done, done + rows.count())
        batch = list(rows.filter(row__gt=last).order_by("row")[: embeddings.BATCH])
        if not batch:
            return {"embedded": done}
        vectors = embeddings.embed(handle, [passage.text for passage in batch])
        for passage, vector in zip(batch, vectors, strict=True):
            passage.vector, passage.vector_model = vector, handle
        Passage.objects.bulk_update(batch, ["vector", "vector_model"])
        done, last = done + len(batch), batch[-1].row


# Two at once would pay the model twice for the same passages.
KIND = JobKind(EMBED_ARCHIVE, embed_archive, is_one_per_subject=True)
