"""The bytes of uploaded files below `files/` of the data directory: written whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

from souveraine.errors import Unavailable


def folder_path(folder_id: uuid.UUID) -> Path:
    """Return where a folder's files are."""
    return Path(settings.DATA_DIR) / "files" / str(folder_id)


def file_path(folder_id: uuid.UUID, file_id: uuid.UUID) -> Path:
    """Return where a file's bytes are."""
    return folder_path(folder_id) / str(file_id)


def store(folder_id: uuid.UUID, file_id: uuid.UUID, pieces: Iterable[bytes]) -> int:
    """Write a file and return its size in bytes. Raises Unavailable when the disk does not take it."""
    path = file_path(folder_id, file_id)
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with partial.open("wb") as out:
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        partial.replace(path)
    except OSError as exc:
        partial.unlink(missing_ok=True)
        raise Unavailable(f"The file could not be stored: {exc.strerror or exc}.") from exc
    return size


def remove_file(folder_id: uuid.UUID, file_id: uuid.UUID) -> None:
    """Remove a file's bytes; one that is not there is no error."""
    file_path(folder_id, file_id).unlink(missing_ok=True)


def remove_folder(folder_id: uuid.UUID) -> None:
    """Remove all files of a folder."""
    shutil.rmtree(folder_path(folder_id), ignore_errors=True)
