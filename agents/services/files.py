"""Uploading files, and the job that reads them: text, then passages, then the agents of the folder have it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.actor import KEYLESS_SCOPES, Actor
from agents.files import store
from agents.files.chunks import passages
from agents.files.extract import media_type_of, text_of
from agents.jobs.kinds import JobContext, JobKind
from agents.models import Agent, File, FileContent, FileStatus, Folder, Job, Passage
from agents.services.archives import NewPassage, insert_passages
from agents.services.jobs import create_job
from agents.services.open_files import add_to_agent
from souveraine import ids
from souveraine.errors import Conflict, InvalidArgument, NotFound

logger = logging.getLogger(__name__)
READ_FILE = "file_processing"
MAX_NAME_CHARS = 240  # room for a suffix
PASSAGES_AT_ONCE = 64
HEAD_BYTES = 65_536


def upload_file(
    actor: Actor, folder: Folder, name: str, pieces: Iterable[bytes], on_duplicate: str
) -> File:
    """Store a file and start the job that reads it.

    `on_duplicate` is skip (returns the file of that name), error, suffix or replace. Raises
    InvalidArgument, UnsupportedMediaType, Conflict, Unavailable.
    """
    name = _file_name(name)
    iterator = iter(pieces)
    head = next(iterator, b"")
    media_type = media_type_of(name, head[:HEAD_BYTES])
    file = File(folder=folder, original_name=name, media_type=media_type)
    file.size_bytes = store.store(folder.pk, file.pk, _chained(head, iterator))
    is_kept = False
    try:
        stored = _store_row(actor, folder, file, on_duplicate)
        is_kept = stored.pk == file.pk
        return stored
    finally:
        if not is_kept:
            store.remove_file(folder.pk, file.pk)


def _chained(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def _file_name(name: str) -> str:
    name = PurePath(name.replace("\\", "/")).name.strip()
    if not name or name in (".", "..") or not name.isprintable():
        raise InvalidArgument("The file needs a name of printable characters.")
    stem, dot, extension = name.rpartition(".")
    if len(name) <= MAX_NAME_CHARS:
        return name
    kept = f"{dot}{extension}"[-20:] if stem else ""
    return name[: MAX_NAME_CHARS - len(kept)] + kept


def _store_row(actor: Actor, folder: Folder, file: File, on_duplicate: str) -> File:
    with transaction.atomic():
        if not Folder.objects.select_for_update().filter(pk=folder.pk).exists():
            raise NotFound(f"Folder with id 'source-{folder.pk}' not found")
        present = File.objects.filter(folder=folder, name=file.original_name).first()
        file.name = file.original_name
        if present is not None and on_duplicate == "skip":
            present.folder = folder
            return present
        if present is not None and on_duplicate == "error":
            raise Conflict(
                f"File '{file.original_name}' already exists in this folder. Rename it, or upload it with "
                "duplicate_handling suffix, replace or skip."
            )
        if present is not None and on_duplicate == "replace":
            delete_file(present)
        elif present is not None:
            file.name = _suffixed(folder, file.original_name)
        file.save(force_insert=True)
        create_job(
            actor,
            READ_FILE,
            {"file_id": str(file.pk)},
            subject=folder.pk,
            metadata={
                "filename": file.name,
                "file_id": ids.make(ids.FILE, file.pk),
                "source_id": ids.make(ids.FOLDER, folder.pk),
            },
        )
    return file


def _suffixed(folder: Folder, name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    if not stem:
        stem, dot, extension = name, "", ""
    taken = set(
        File.objects.filter(folder=folder, name__startswith=stem).values_list("name", flat=True)
    )
    names = (f"{stem}_({n}){dot}{extension}" for n in range(1, len(taken) + 2))
    return next(n for n in names if n not in taken)


def delete_file(file: File) -> None:
    """Delete a file with its text and passages; agents lose it."""
    folder_id, file_id = file.folder_id, file.pk
    with transaction.atomic():
        file.delete()
        transaction.on_commit(lambda: store.remove_file(folder_id, file_id))


def read_file(context: JobContext) -> dict[str, Any] | None:
    """Read the file of a job; may begin anew at any time."""
    file = (
        File.objects.select_related("folder__archive")
        .filter(pk=uuid.UUID(context.job.arguments["file_id"]))
        .first()
    )
    if file is None:  # deleted meanwhile
        return None
    _note(file, FileStatus.PARSING)
    try:
        text = text_of(store.file_path(file.folder_id, file.pk), file.media_type)
    except FileNotFoundError:  # deleted just now, when nothing is left to be told of it
        raise InvalidArgument("The bytes of this file are gone. Upload it again.") from None
    with transaction.atomic():
        context.hold()
        FileContent.objects.update_or_create(file=file, defaults={"text": text})
        Passage.objects.filter(file=file).delete()  # of an earlier attempt
        _note(file, FileStatus.EMBEDDING)
    total = _insert(context, file, text)
    with transaction.atomic():
        context.hold()
        _complete(file, total)
    return {"num_passages": total}


def _insert(context: JobContext, file: File, text: str) -> int:
    actor = Actor(context.job.owner, KEYLESS_SCOPES)
    pieces = enumerate(passages(text))
    total = sum(1 for _ in passages(text))
    done = 0
    while batch := list(islice(pieces, PASSAGES_AT_ONCE)):
        new = [NewPassage(piece, metadata={"position": n}, file=file) for n, piece in batch]
        insert_passages(actor, file.folder.archive, new, guard=context.hold)
        done += len(batch)
        context.progress(done, total)
    return total


def _note(file: File, status: FileStatus) -> None:
    File.objects.filter(pk=file.pk).update(status=status, error="", updated_at=timezone.now())


def _complete(file: File, total: int) -> None:
    # With the folder locked: an agent to which it is just attached finds the file ready, or is found here.
    Folder.objects.select_for_update().filter(pk=file.folder_id).first()
    embedded = Passage.objects.filter(file=file, vector__isnull=False).count()
    File.objects.filter(pk=file.pk).update(
        status=FileStatus.COMPLETED,
        total_chunks=total,
        chunks_embedded=embedded,
        updated_at=timezone.now(),
    )
    for agent in Agent.objects.filter(folder_rows__folder=file.folder_id).order_by("pk"):
        add_to_agent(agent, [file])


def _gave_up(job: Job, reason: str) -> None:
    unread = File.objects.filter(pk=uuid.UUID(job.arguments["file_id"])).exclude(
        status=FileStatus.COMPLETED
    )
    unread.update(status=FileStatus.ERROR, error=reason, updated_at=timezone.now())


KIND = JobKind(READ_FILE, read_file, _gave_up)
