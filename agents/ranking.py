"""One order out of what was found by words and by meaning.

Ranks alone (reciprocal rank fusion) lose how much better the first is than the second, and with equal weights
the worse of two ways pulls the better one down. So scores are fused and weighted; and where the best match by words
has only some of the words, the words count for less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Scored = Sequence[tuple[int, float]]  # (row, score), best first


@dataclass(frozen=True)
class Weights:
    """How much each way counts."""

    text: float
    vector: float


TEXT_ONLY = Weights(text=1.0, vector=0.0)
BOTH = Weights(text=1.0, vector=1.5)  # measured: docs/benchmarks.md


@dataclass(frozen=True)
class Ranked:
    """One row in the fused order; ranks count from 1, None: not found that way. `by_text` is the words' part
    of the score.
    """

    row: int
    score: float
    by_text: float = 0.0
    text_rank: int | None = None
    vector_rank: int | None = None


def fuse(by_text: Scored, by_vector: Scored, weights: Weights) -> list[Ranked]:
    """Return all rows of both lists, best first; the score is between 0 and 1."""
    text, vector = _scaled(by_text), _scaled_similarities(by_vector)
    text_ranks = {row: rank for rank, (row, _) in enumerate(by_text, start=1)}
    vector_ranks = {row: rank for rank, (row, _) in enumerate(by_vector, start=1)}
    total = weights.text + weights.vector
    ranked = [
        Ranked(
            row,
            (weights.text * text.get(row, 0.0) + weights.vector * vector.get(row, 0.0)) / total,
            weights.text * text.get(row, 0.0) / total,
            text_ranks.get(row),
            vector_ranks.get(row),
        )
        for row in {**text, **vector}
    ]
    return sorted(ranked, key=lambda r: (-r.score, -r.row))


def _scaled(found: Scored) -> dict[int, float]:
    best = max((score for _, score in found), default=0.0)
    return {row: score / max(best, 1.0) for row, score in found}


def _scaled_similarities(found: Scored) -> dict[int, float]:
    """Scale from the last candidate (0) to the best (1): models differ in how near unrelated texts are."""
    if not found:
        return {}
    best, least = found[0][1], min(found[-1][1], found[0][1] - 1e-6)
    return {row: (score - least) / (best - least) for row, score in found}
