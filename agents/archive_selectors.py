"""Reads of archives and passages: lists, and the search by words and by meaning."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, QuerySet
from django.utils.module_loading import import_string

from agents.actor import Actor
from agents.models import Agent, Archive, Passage, PassageTag
from agents.providers import embeddings
from agents.ranking import BOTH, TEXT_ONLY, Ranked, fuse
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.errors import NotFound, SouveraineError
from souveraine.lib import full_text
from souveraine.lib.full_text import Condition, TextIndex, words_of

logger = logging.getLogger(__name__)
PASSAGES = TextIndex("agents_passage", ("archive_id",))
CANDIDATES = 100  # of each way of searching, before they are fused
MAX_TEXT_MATCHES = 10_000  # passages that a list filtered by words pages through
NEAREST = "agents.vectors.nearest"  # loads numpy, so only when it is needed


@dataclass(frozen=True)
class PassageQuery:
    """What to look for. Without `query` the newest come first. `until` is exclusive."""

    query: str = ""
    tags: Sequence[str] = ()
    needs_all_tags: bool = False
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 50


@dataclass(frozen=True)
class FoundPassage:
    """A passage with its fused score (0 without a query) and its places, from 1, in both ways of searching."""

    passage: Passage
    score: float = 0.0
    ranks: dict[str, int | None] = field(default_factory=dict)


def archives_of(actor: Actor) -> QuerySet[Archive]:
    """Return the archives that the actor may use; those of folders are seen as folders only."""
    return Archive.objects.filter(owner=actor.user, folder__isnull=True)


def get_archive(actor: Actor, archive_id: uuid.UUID) -> Archive:
    """Return one archive. Raises NotFound."""
    archive = archives_of(actor).filter(pk=archive_id).first()
    if archive is None:
        raise NotFound(f"Archive with id '{ids.make(ids.ARCHIVE, archive_id)}' not found")
    return archive


def list_archives(
    actor: Actor,
    *,
    agent: Agent | None,
    name: str | None,
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Archive]:
    """Return one page of archives. Raises NotFound for an unknown cursor."""
    queryset = archives_of(actor)
    if agent is not None:
        queryset = queryset.filter(agent_rows__agent=agent)
    if name is not None:
        queryset = queryset.filter(name=name)
    return page(
        queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_archive(actor, after) if after else None,
        before=get_archive(actor, before) if before else None,
    )


def archives_of_agent(agent: Agent) -> list[Archive]:
    """Return what is attached to the agent, its own archive first."""
    return list(
        Archive.objects.filter(agent_rows__agent=agent).order_by(
            "-agent_rows__is_own", "agent_rows__pk"
        )
    )


def passages_in(archives: Sequence[Archive]) -> QuerySet[Passage]:
    """Return the passages of the archives."""
    return Passage.objects.filter(archive__in=[a.pk for a in archives]).select_related(
        "archive", "file__folder"
    )


def get_passage(archives: Sequence[Archive], passage_id: uuid.UUID) -> Passage:
    """Return one passage of the archives. Raises NotFound."""
    passage = passages_in(archives).filter(id=passage_id).first()
    if passage is None:
        raise NotFound(f"Passage with id '{ids.make(ids.PASSAGE, passage_id)}' not found")
    return passage


def list_passages(
    archives: Sequence[Archive],
    *,
    search: str | None,
    ascending: bool,
    limit: int,
    after: uuid.UUID | None = None,
    before: uuid.UUID | None = None,
) -> list[Passage]:
    """Return one page by date; `search` keeps those with all of its words. Raises NotFound for a cursor."""
    queryset = passages_in(archives)
    if search and (words := words_of(search)):
        scope = {"archive_id": [a.pk for a in archives]}
        queryset = queryset.filter(pk__in=PASSAGES.with_all(words, scope, MAX_TEXT_MATCHES))
    return page(
        queryset,
        field="created_at",
        ascending=ascending,
        limit=limit,
        after=get_passage(archives, after) if after else None,
        before=get_passage(archives, before) if before else None,
    )


def count_passages(agent: Agent) -> int:
    """Return how many passages the agent can find."""
    return Passage.objects.filter(archive__agent_rows__agent=agent).count()


def search_passages(archives: Sequence[Archive], wanted: PassageQuery) -> list[FoundPassage]:
    """Return the best passages of the archives, best first.

    Where an archive has an embedding model, meaning counts too; a model that cannot be asked now only costs
    that part. May block for its answer.
    """
    words = words_of(wanted.query)
    if not words:
        rows = _filtered(passages_in(archives), wanted).order_by("-created_at", "-row")
        return [FoundPassage(passage) for passage in rows[: wanted.limit]]
    wide = max(CANDIDATES, wanted.limit)
    scope = {"archive_id": [a.pk for a in archives]}
    by_text = [(h.row, h.score) for h in PASSAGES.best(words, scope, _conditions(wanted), wide)]
    by_vector = _nearest(archives, wanted, wide)
    ranked = fuse(by_text, by_vector, BOTH if by_vector else TEXT_ONLY)[: wanted.limit]
    found = Passage.objects.select_related("archive", "file__folder").in_bulk(
        [r.row for r in ranked]
    )
    return [_found(found[r.row], r) for r in ranked if r.row in found]


def _found(passage: Passage, ranked: Ranked) -> FoundPassage:
    return FoundPassage(
        passage,
        ranked.score,
        {"fts_rank": ranked.text_rank, "vector_rank": ranked.vector_rank},
    )


def _nearest(
    archives: Sequence[Archive], wanted: PassageQuery, limit: int
) -> list[tuple[int, float]]:
    """Search by meaning, each model's archives with its own vector of the query."""
    by_model: dict[str, list[uuid.UUID]] = {}
    for archive in archives:
        if archive.embedding:
            by_model.setdefault(archive.embedding, []).append(archive.pk)
    found: list[tuple[int, float]] = []
    for handle, archive_ids in by_model.items():
        try:
            [vector] = embeddings.embed(
                handle, [wanted.query], timeout_seconds=embeddings.QUERY_SECONDS
            )
        except SouveraineError as exc:
            logger.warning("event=query_not_embedded model=%s error=%s", handle, exc.text)
            continue
        rows = _filtered(
            Passage.objects.filter(archive__in=archive_ids, vector_model=handle), wanted
        )
        found += import_string(NEAREST)(
            rows.order_by("-row").values_list("row", "vector"), vector, limit
        )
    return sorted(found, key=lambda entry: -entry[1])[:limit]


def _filtered(queryset: QuerySet[Passage], wanted: PassageQuery) -> QuerySet[Passage]:
    if wanted.since is not None:
        queryset = queryset.filter(created_at__gte=wanted.since)
    if wanted.until is not None:
        queryset = queryset.filter(created_at__lt=wanted.until)
    tags = list(dict.fromkeys(wanted.tags))
    if tags:
        counted = PassageTag.objects.filter(tag__in=tags).values("passage").annotate(n=Count("pk"))
        needed = len(tags) if wanted.needs_all_tags else 1
        queryset = queryset.filter(pk__in=counted.filter(n__gte=needed).values("passage"))
    return queryset


def _conditions(wanted: PassageQuery) -> list[Condition]:
    conditions = []
    if wanted.since is not None:
        conditions.append(full_text.since(wanted.since))
    if wanted.until is not None:
        conditions.append(full_text.until(wanted.until))
    tags = list(dict.fromkeys(wanted.tags))
    if tags:
        places = ", ".join(["%s"] * len(tags))
        matches = f"SELECT COUNT(*) FROM agents_passagetag t WHERE t.passage_id = m.row AND t.tag IN ({places})"  # noqa: S608  places only
        conditions.append((f"({matches}) >= {len(tags) if wanted.needs_all_tags else 1}", [*tags]))
    return conditions
