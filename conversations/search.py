"""Full text search in messages: FTS5 on SQLite, tsvector on PostgreSQL. User input is quoted, never syntax."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.postgres.search import SearchQuery, SearchRank, SearchVector
from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Left

from conversations.models import Message

SEARCHED_ROLES = (Message.Role.USER, Message.Role.ASSISTANT)
INDEXED_CHARS = (
    100_000  # PostgreSQL refuses a tsvector above 1 MB; the index expression has the same number
)
MAX_WORDS = 32
STOP_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "his",
        "how",
        "i",
        "in",
        "is",
        "it",
        "its",
        "me",
        "my",
        "of",
        "on",
        "or",
        "our",
        "she",
        "so",
        "that",
        "the",
        "their",
        "them",
        "they",
        "this",
        "to",
        "us",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
FTS_SQL = """
SELECT m.row FROM conversations_message_fts f
JOIN conversations_message m ON m.row = f.rowid
JOIN conversations_conversation c ON c.id = m.conversation_id
WHERE conversations_message_fts MATCH %s AND m.agent_id = %s AND c.deleted_at IS NULL
  AND m.role IN ({roles}) AND m.created_at >= %s AND m.created_at < %s
ORDER BY f.rank, m.row DESC LIMIT %s
"""


def words_of(query: str) -> list[str]:
    """Return the words to look for; stop words are left out unless there is nothing else."""
    words = [w.lower() for w in re.findall(r"\w+", query)][: MAX_WORDS * 2]
    kept = [w for w in words if w not in STOP_WORDS]
    return list(dict.fromkeys(kept or words))[:MAX_WORDS]


def search_messages(
    agent_id: uuid.UUID,
    query: str,
    *,
    roles: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 10,
) -> list[Message]:
    """Return the best matching messages of an agent, best first; without words the newest of the time range."""
    chosen = list(roles or SEARCHED_ROLES)
    words = words_of(query)
    if words and connection.vendor == "sqlite":
        return _search_fts(agent_id, words, chosen, since, until, limit)
    found: QuerySet[Message] = Message.objects.filter(
        agent_id=agent_id, role__in=chosen, conversation__deleted_at__isnull=True
    )
    if since is not None:
        found = found.filter(created_at__gte=since)
    if until is not None:
        found = found.filter(created_at__lt=until)
    return list((_search_vector(found, words) if words else found.order_by("-row"))[:limit])


def _search_vector(found: QuerySet[Message], words: list[str]) -> QuerySet[Any]:
    query = SearchQuery(" | ".join(f"'{w}'" for w in words), search_type="raw", config="english")
    vector = SearchVector(Left("text", INDEXED_CHARS), config="english")
    return (
        found.annotate(found=vector)
        .filter(found=query)
        .order_by(SearchRank(vector, query).desc(), "-row")
    )


def _search_fts(
    agent_id: uuid.UUID,
    words: list[str],
    roles: list[str],
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[Message]:
    """Search with FTS5; the words are one bound parameter, each quoted."""
    match = " OR ".join(f'"{w}"' for w in words)
    bounds = [_sqlite_time(since) or "0000-01-01", _sqlite_time(until) or "9999-12-31"]
    sql = FTS_SQL.format(roles=", ".join(["%s"] * len(roles)))
    with connection.cursor() as cursor:
        cursor.execute(sql, [match, agent_id.hex, *roles, *bounds, limit])
        order = [row for (row,) in cursor.fetchall()]
    rows = Message.objects.in_bulk(order)
    return [rows[row] for row in order if row in rows]


def _sqlite_time(moment: datetime | None) -> str | None:
    return None if moment is None else str(connection.ops.adapt_datetimefield_value(moment))
