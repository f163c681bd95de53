"""The nearest vectors, with numpy. Loaded (by import_string) only when somebody searches by meaning."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Any

import numpy as np
from django.db.models import QuerySet

CHUNK = 4096  # vectors in memory at once
MAX_SCANNED = 200_000  # the newest; above this a search by meaning alone would take seconds


def nearest(rows: QuerySet[Any, Any], vector: bytes, limit: int) -> list[tuple[int, float]]:
    """Return the (row, cosine similarity) of the nearest of the first MAX_SCANNED of `rows`, which are (row, vector).

    Vectors of another length are left out. Memory does not grow with their number.
    """
    wanted = np.frombuffer(vector, dtype="<f4")
    best: list[tuple[float, int]] = []
    iterator = iter(rows[:MAX_SCANNED].iterator(chunk_size=CHUNK))
    while chunk := list(islice(iterator, CHUNK)):
        usable = [(row, bytes(v)) for row, v in chunk if v is not None and len(v) == len(vector)]
        if not usable:
            continue
        matrix = np.frombuffer(b"".join(v for _, v in usable), dtype="<f4").reshape(
            len(usable), len(wanted)
        )
        scores = (matrix @ wanted).tolist()
        found = [(score, row) for score, (row, _) in zip(scores, usable, strict=True)]
        best = heapq.nlargest(limit, [*best, *found])
    return [(row, score) for score, row in best]
