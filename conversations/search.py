"""Search in messages, by words and (with SOUVERAINE_EMBEDDING_MODEL) by meaning.

A question seldom has the words of its answer, so more than the words counts: the messages beside one that
matches, who is meant to have said it, and when. `Tuning` has how much; `make bench-search` measures it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Literal

from django.conf import settings
from django.db.models import Q, QuerySet
from django.db.models.functions import Right
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.actor import Actor
from agents.models import Agent
from agents.providers import embeddings
from agents.ranking import BOTH, Ranked, Weights, fuse
from conversations.lineage import shown_in
from conversations.models import Conversation, Message, MessageVector
from conversations.search_signals import USER, Span, span_of, speaker_of
from conversations.snippets import Snippet, snippet_of
from souveraine.errors import InvalidArgument, SouveraineError
from souveraine.lib import full_text
from souveraine.lib.full_text import Condition, Scope, TextIndex, uuid_value, words_of

logger = logging.getLogger(__name__)
MESSAGES = TextIndex("conversations_message", ("agent_id", "conversation_id"))
SEARCHED_ROLES = (Message.Role.USER, Message.Role.ASSISTANT)
CANDIDATES = 100  # of each way of searching
LOOKED_AROUND = 40  # the best of them, whose neighbours are looked at
DAY = 100  # messages of a named time that are all looked at
NEAREST = "agents.vectors.nearest"  # loads numpy, so only when it is needed
Mode = Literal["hybrid", "fts", "vector"]
OWNED = "m.agent_id IN (SELECT id FROM agents_agent WHERE owner_id = %s)"
KEPT = "m.conversation_id IN (SELECT id FROM conversations_conversation WHERE deleted_at IS NULL)"


@dataclass(frozen=True)
class Tuning:
    """How much each sign counts, as shares of the best score by words.

    `answer`: of the words' score of a question that the other one asked just before; `neighbour`: of the best
    one up to two places away, for what matches itself. `speaker` and `date` raise the score of what fits; `day`
    is what lies in a named time and has nothing else.
    """

    text: float = BOTH.text
    vector: float = BOTH.vector
    answer: float = 0.8
    neighbour: float = 0.1
    speaker: float = 0.3
    date: float = 1.0
    day: float = 1.25


TUNING = Tuning()


@dataclass(frozen=True)
class MessageQuery:
    """What to look for. Without `query` the newest come first. `until` is exclusive; `asker` says "I" in the query."""

    query: str = ""
    roles: Sequence[str] = SEARCHED_ROLES
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 10
    mode: Mode = "hybrid"
    asker: str = USER


@dataclass(frozen=True)
class FoundMessage:
    """A message with its score (0 without a query) and its places, from 1, in both ways of searching."""

    message: Message
    score: float = 0.0
    text_rank: int | None = None
    vector_rank: int | None = None
    snippet: Snippet = field(default_factory=lambda: Snippet("", None))


@dataclass(frozen=True)
class Place:
    """Where to search: in a conversation (with what it inherited as a fork), else in an agent's conversations,
    else in all of the owner's.
    """

    owner_id: uuid.UUID
    agent_id: uuid.UUID | None = None
    conversation: Conversation | None = None

    @property
    def scope(self) -> Scope:
        """The scope in the full text index."""
        if self.conversation:
            inherited = [uuid.UUID(part["conversation"]) for part in self.conversation.inherited]
            return {"conversation_id": [self.conversation.pk, *inherited]}
        return {"agent_id": [self.agent_id]} if self.agent_id else {}

    def messages(self) -> QuerySet[Message]:
        """Return all messages of the place."""
        found = Message.objects.filter(agent__owner=self.owner_id)
        if self.agent_id:
            found = found.filter(agent=self.agent_id)
        if self.conversation:
            return found.filter(shown_in(self.conversation))
        return found.filter(conversation__deleted_at__isnull=True)

    def conditions(self) -> list[Condition]:
        """Return the same for the full text index."""
        named: list[Condition] = [(OWNED, [uuid_value(self.owner_id)])]
        if self.agent_id:
            named.append(("m.agent_id = %s", [uuid_value(self.agent_id)]))
        named.append(_ranges(self.conversation) if self.conversation else (KEPT, []))
        return named


def _ranges(conversation: Conversation) -> Condition:
    """Return `shown_in` for the full text index."""
    sql, values = ["m.conversation_id = %s"], [uuid_value(conversation.pk)]
    for part in conversation.inherited:
        sql.append("(m.conversation_id = %s AND m.sequence BETWEEN %s AND %s)")
        values += [uuid_value(uuid.UUID(part["conversation"])), part["first"], part["last"]]
    return f"({' OR '.join(sql)})", values


def place_of(
    actor: Actor, agent: Agent | None = None, conversation: Conversation | None = None
) -> Place:
    """Return where the actor searches; agent and conversation are ones that the actor may see."""
    return Place(actor.user_id, agent.pk if agent else None, conversation)


def search_messages(
    place: Place, wanted: MessageQuery, tuning: Tuning = TUNING
) -> list[FoundMessage]:
    """Return the best messages for a query, best first. A number of queries that does not depend on how many
    there are; may block for the vector of the query.

    Raises InvalidArgument for mode `vector` without an embedding model, ProviderError when it cannot be asked.
    """
    words = words_of(wanted.query)
    now = timezone.now()
    span = span_of(wanted.query, now) if words else None
    if not words:
        rows = _filtered(place.messages(), wanted).select_related("agent")
        rows = rows.order_by("-row")[: wanted.limit]
        return [FoundMessage(m, snippet=snippet_of(m.text, [])) for m in rows]
    by_text = [] if wanted.mode == "vector" else _by_text(place, wanted, words, span)
    by_vector = _by_vector(place, wanted)
    ranked = fuse(by_text, by_vector, Weights(tuning.text, tuning.vector if by_vector else 0.0))
    best = _with_signs(place, wanted, ranked[: 2 * CANDIDATES], span, tuning)[: wanted.limit]
    found = Message.objects.select_related("agent").in_bulk([r.row for r in best])
    return [
        FoundMessage(
            found[r.row], r.score, r.text_rank, r.vector_rank, snippet_of(found[r.row].text, words)
        )
        for r in best
        if r.row in found
    ]


def _by_text(
    place: Place, wanted: MessageQuery, words: Sequence[str], span: Span | None
) -> list[tuple[int, float]]:
    """Search by words; what lies in the named time gets places of its own, since most of the rest does not."""
    conditions = [*place.conditions(), full_text.one_of("role", list(wanted.roles))]
    if wanted.since is not None:
        conditions.append(full_text.since(wanted.since))
    if wanted.until is not None:
        conditions.append(full_text.until(wanted.until))
    hits = MESSAGES.best(words, place.scope, conditions, CANDIDATES)
    if span is not None:
        named = set(words_of(span.words))
        rest = [word for word in words if word not in named]
        within = [full_text.since(span.since), full_text.until(span.until)]
        hits += MESSAGES.best(rest, place.scope, [*conditions, *within], CANDIDATES)
    best = {hit.row: hit.score for hit in sorted(hits, key=lambda hit: hit.score)}
    return sorted(best.items(), key=lambda entry: (-entry[1], -entry[0]))


def _by_vector(place: Place, wanted: MessageQuery) -> list[tuple[int, float]]:
    handle = settings.CONFIG["SOUVERAINE_EMBEDDING_MODEL"]
    if wanted.mode == "fts" or (not handle and wanted.mode == "hybrid"):
        return []
    if not handle:
        raise InvalidArgument(
            "Messages are not embedded on this server, so search_mode 'vector' finds nothing. Use 'fts' or "
            "'hybrid', or set SOUVERAINE_EMBEDDING_MODEL."
        )
    try:
        [vector] = embeddings.embed(
            handle, [wanted.query], timeout_seconds=embeddings.QUERY_SECONDS
        )
    except SouveraineError as exc:
        if wanted.mode == "vector":
            raise
        logger.warning("event=query_not_embedded model=%s error=%s", handle, exc.text)
        return []
    return nearest_messages(place, wanted, handle, vector, CANDIDATES)


def nearest_messages(
    place: Place, wanted: MessageQuery, handle: str, vector: bytes, limit: int
) -> list[tuple[int, float]]:
    """Return (row, similarity) of the messages whose vectors of that model are nearest, best first."""
    vectors = MessageVector.objects.filter(model=handle)
    if place.agent_id:
        vectors = vectors.filter(agent=place.agent_id)
    vectors = vectors.filter(message__in=_filtered(place.messages(), wanted))
    rows = vectors.order_by("-pk").values_list("pk", "vector")
    found: list[tuple[int, float]] = import_string(NEAREST)(rows, vector, limit)
    return found


@dataclass(frozen=True)
class _Around:
    """What the signs need of a message; `tail` is its end."""

    row: int
    conversation_id: uuid.UUID
    sequence: int
    role: str
    created_at: datetime
    tail: str


_Key = tuple[uuid.UUID, int]
FIELDS = ("row", "conversation_id", "sequence", "role", "created_at", "tail")
TAIL_CHARS = 3


def _with_signs(
    place: Place, wanted: MessageQuery, ranked: Sequence[Ranked], span: Span | None, tuning: Tuning
) -> list[Ranked]:
    """Order anew by what the neighbours, the speaker and the date tell."""
    known = {r.row: r for r in ranked}
    if span is not None:
        known |= {row: Ranked(row, 0.0) for row in _within(place, wanted, span) if row not in known}
    own = _around(Message.objects.filter(pk__in=known))
    looked_around = {r.row for r in ranked[:LOOKED_AROUND]}
    near = _neighbours(place, [a for a in own if a.row in looked_around], known)
    places = {(a.conversation_id, a.sequence): a for a in (*own, *near)}
    # By words only: the vector of an answer knows its question already.
    scores = {(a.conversation_id, a.sequence): known[a.row].by_text for a in own}
    speaker = speaker_of(wanted.query, wanted.asker)
    result = []
    for one in places.values():
        if not _fits(one, wanted):
            continue
        added = _beside(one, places, scores, tuning)
        old = known.get(one.row, Ranked(one.row, 0.0))
        if one.row not in known and not added.is_answer:
            continue
        score = old.score + added.score
        if span is not None and span.since <= one.created_at < span.until:
            score = score * (1 + tuning.date) + tuning.day
        if speaker is not None and one.role == speaker:
            score *= 1 + tuning.speaker
        result.append(replace(old, score=score))
    return sorted(result, key=lambda r: (-r.score, -r.row))


@dataclass(frozen=True)
class _Added:
    score: float
    is_answer: bool


def _beside(
    one: _Around, places: dict[_Key, _Around], scores: dict[_Key, float], tuning: Tuning
) -> _Added:
    """Return what the messages before and after add to a message's score."""
    conversation, at = one.conversation_id, one.sequence
    before = places.get((conversation, at - 1))
    answered = 0.0
    if before is not None and before.role != one.role and "?" in before.tail:
        answered = tuning.answer * scores.get((conversation, at - 1), 0.0)
    near = max(scores.get((conversation, at + step), 0.0) / abs(step) for step in (-2, -1, 1, 2))
    return _Added(max(answered, tuning.neighbour * near), answered > 0)


def _within(place: Place, wanted: MessageQuery, span: Span) -> list[int]:
    """Return the messages of a named time, unless they are too many for the time to tell much."""
    inside = place.messages().filter(created_at__gte=span.since, created_at__lt=span.until)
    rows = list(_filtered(inside, wanted).order_by("-row").values_list("row", flat=True)[: DAY + 1])
    return rows if len(rows) <= DAY else []


def _neighbours(place: Place, centre: Iterable[_Around], known: Container[int]) -> list[_Around]:
    """Return the messages up to two places from those."""
    places: dict[uuid.UUID, set[int]] = {}
    for one in centre:
        near = places.setdefault(one.conversation_id, set())
        near.update(one.sequence + step for step in (-2, -1, 1, 2))
    if not places:
        return []
    near_by = reduce(or_, (Q(conversation=c, sequence__in=s) for c, s in places.items()))
    return [a for a in _around(place.messages().filter(near_by)) if a.row not in known]


def _around(messages: QuerySet[Message]) -> list[_Around]:
    rows = messages.annotate(tail=Right("text", TAIL_CHARS)).values_list(*FIELDS)
    return [_Around(*row) for row in rows]


def _fits(one: _Around, wanted: MessageQuery) -> bool:
    return (
        one.role in wanted.roles
        and (wanted.since is None or one.created_at >= wanted.since)
        and (wanted.until is None or one.created_at < wanted.until)
    )


def _filtered(found: QuerySet[Message], wanted: MessageQuery) -> QuerySet[Message]:
    found = found.filter(role__in=wanted.roles)
    if wanted.since is not None:
        found = found.filter(created_at__gte=wanted.since)
    return found.filter(created_at__lt=wanted.until) if wanted.until is not None else found
