"""Full text over one table: FTS5 on SQLite, tsvector on PostgreSQL. User input is bound and quoted, never syntax.

A table that is searched has the key `row`, a column `text` and scope columns of UUIDs (whose it is), which
stand in the FTS5 index too, so that the cost depends on what a scope holds of a word, not on all there is.
That cost is bounded: how often each word occurs is counted up to a limit, and the frequent words are left
out when rarer ones can tell more. Migrations make the indexes: the FTS5 table `<table>_fts` over `text` and
the scope columns with its triggers, and on PostgreSQL the generated column `search`.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

MAX_WORDS = 32
FREQUENT = 1500  # occurrences: a word that is in so many rows tells little
RANKED_ROWS = 3000  # rows that one search ranks at most
ENOUGH = 20  # rows with rare words, beside which frequent words are not looked for
LEAST_WEIGHT = 1e-6
K1, B, USUAL_LENGTH = 1.2, 0.75, 20  # of BM25; the length of a usual text in different words
STOP_WORDS = frozenset(
    (  # noqa: SIM905  a list of them takes eighty lines
        "a about an and any are as at be been but by can could did do does for from had has have he her here his "
        "how i if in into is it its just me my no not of on or our out she should so some than that the their them "
        "then there these they this those to up us was we were what when where which who whom whose why will with "
        "would you your"
    ).split()
)

Scope = Mapping[str, Sequence[uuid.UUID]]
Condition = tuple[str, list[Any]]


@dataclass(frozen=True)
class Hit:
    """A row that matches. The score is about 1 for a usual text with all of the words, less where some are missing."""

    row: int
    score: float


def words_of(query: str) -> list[str]:
    """Return the words to look for; stop words are left out unless there is nothing else."""
    words = [w.lower() for w in re.findall(r"[^\W_]+", query)][: MAX_WORDS * 2]
    kept = [w for w in words if w not in STOP_WORDS]
    return list(dict.fromkeys(kept or words))[:MAX_WORDS]


def uuid_value(value: uuid.UUID) -> Any:
    """Return a UUID as the database keeps it."""
    return value if connection.features.has_native_uuid_field else value.hex


def since(moment: datetime) -> Condition:
    """Rows made at `moment` or later."""
    return "m.created_at >= %s", [_moment_value(moment)]


def until(moment: datetime) -> Condition:
    """Rows made before `moment`."""
    return "m.created_at < %s", [_moment_value(moment)]


def one_of(column: str, values: Sequence[Any]) -> Condition:
    """Rows whose `column` (a name of ours, never input) has one of the values."""
    return f"m.{column} IN ({', '.join(['%s'] * len(values))})", list(values)


def _moment_value(moment: datetime) -> Any:
    return connection.ops.adapt_datetimefield_value(moment)


@dataclass(frozen=True)
class TextIndex:
    """The full text of one table. `scopes` are its scope columns."""

    table: str
    scopes: tuple[str, ...]

    @property
    def fts(self) -> str:
        return f"{self.table}_fts"

    def best(
        self, words: Sequence[str], scope: Scope, conditions: Sequence[Condition], limit: int
    ) -> list[Hit]:
        """Return the rows with any of the words, best first; at most five queries. An empty scope list is no row.

        Of frequent words only the newest rows are ranked; rows with rare words are found however old they are.
        """
        if not words or not limit or any(not ids for ids in scope.values()):
            return []
        # Words that are rare everywhere need no scope in the index, whose own list may be long.
        counted = self._counts(words, {})
        frequent = [word for word in words if counted[word] >= FREQUENT] if scope else []
        counted |= self._counts(frequent, scope)
        present = {word: count for word, count in counted.items() if count}
        rare = _rare({word: count for word, count in present.items() if word not in frequent})
        best = self._ranked(rare, scope, conditions, limit, is_narrow=False)
        if len(best) < min(limit, ENOUGH) and len(rare) < len(present):
            # A row's score over all words is never below that over the rare ones.
            best |= self._ranked(_rare(present) or present, scope, conditions, limit)
        whole = self._whole(counted)
        hits = [Hit(row, score / whole) for row, score in best.items()]
        return sorted(hits, key=lambda hit: (-hit.score, -hit.row))[:limit]

    def _whole(self, counts: Mapping[str, int]) -> float:
        """Return the score of a usual text with all of the words; one that is nowhere counts as a rare one."""
        if connection.vendor != "sqlite":
            return sum(_weight(max(1, count)) for count in counts.values())
        # FTS5 keeps the number of its rows at the start of this record; counting them would take time.
        [(record,)] = _rows(f"SELECT block FROM {self.fts}_data WHERE id = 1", [])  # noqa: S608
        rows = _varint(bytes(record))
        found = (max(1, count) for count in counts.values())
        weights = (math.log((rows - n + 0.5) / (n + 0.5)) if rows > n else 0 for n in found)
        return max(sum(weights), LEAST_WEIGHT)  # bm25() of SQLite weighs so, and never below that

    def _ranked(
        self,
        words: Mapping[str, int],
        scope: Scope,
        conditions: Sequence[Condition],
        limit: int,
        *,
        is_narrow: bool = True,
    ) -> dict[int, float]:
        """Return the best rows; `is_narrow`: the scope is looked up in the index too, for words frequent outside."""
        if not words:
            return {}
        within = [one_of(c, [uuid_value(v) for v in values]) for c, values in scope.items()]
        rank = self._rank_sqlite if connection.vendor == "sqlite" else self._rank_postgresql
        sql, values = rank(words, scope if is_narrow else {}, [*within, *conditions], limit)
        return {row: float(score) for row, score in _rows(sql, values)}

    def with_all(self, words: Sequence[str], scope: Scope, limit: int) -> list[int]:
        """Return the newest rows that have all of the words."""
        if not words or any(not ids for ids in scope.values()):
            return []
        if connection.vendor == "sqlite":
            sql = f"SELECT rowid FROM {self.fts} WHERE {self.fts} MATCH %s ORDER BY rowid DESC LIMIT %s"  # noqa: S608  our names
            return [row for (row,) in _rows(sql, [self._match(words, scope, " AND "), limit])]
        scoped, values = _scoped(scope)
        sql = (
            f"SELECT m.row FROM {self.table} m WHERE {scoped} AND m.search @@ plainto_tsquery('english', %s) "  # noqa: S608
            "ORDER BY m.row DESC LIMIT %s"
        )
        return [row for (row,) in _rows(sql, [*values, " ".join(words), limit])]

    def _counts(self, words: Sequence[str], scope: Scope) -> dict[str, int]:
        """Return in how many rows of the scope each word is, counted up to FREQUENT."""
        if not words:
            return {}
        parts, values = [], []
        for number, word in enumerate(words):
            if connection.vendor == "sqlite":
                inner = f"SELECT 1 FROM {self.fts} WHERE {self.fts} MATCH %s LIMIT {FREQUENT}"  # noqa: S608
                given: list[Any] = [self._match([word], scope)]
            else:
                scoped, given = _scoped(scope)
                given = [*given, word]
                inner = (
                    f"SELECT 1 FROM {self.table} m WHERE {scoped} AND "  # noqa: S608
                    f"m.search @@ plainto_tsquery('english', %s) LIMIT {FREQUENT}"
                )
            parts.append(f"SELECT {number}, COUNT(*) FROM ({inner}) AS found")  # noqa: S608
            values += given
        return {words[number]: count for number, count in _rows(" UNION ALL ".join(parts), values)}

    def _match(self, words: Sequence[str], scope: Scope, joined: str = " OR ") -> str:
        """Write an FTS5 expression: every word quoted, so it is a phrase and nothing else."""
        parts = ["(" + joined.join(f'text : "{word}"' for word in words) + ")"]
        for column, values in scope.items():
            parts.append("(" + " OR ".join(f'{column} : "{value.hex}"' for value in values) + ")")
        return " AND ".join(parts)

    def _rank_sqlite(
        self, words: Mapping[str, int], scope: Scope, conditions: Sequence[Condition], limit: int
    ) -> tuple[str, list[Any]]:
        weights = ", ".join(["1.0", *["0.0"] * len(self.scopes)])
        where, values = _where(conditions)
        # CROSS JOIN keeps the index first: the newest rows come out of it in order, without a sort.
        sql = (
            f"SELECT row, score FROM (SELECT m.row AS row, -bm25({self.fts}, {weights}) AS score "  # noqa: S608
            f"FROM {self.fts} f CROSS JOIN {self.table} m ON m.row = f.rowid "
            f"WHERE {self.fts} MATCH %s{where} ORDER BY f.rowid DESC LIMIT {RANKED_ROWS}) "
            "ORDER BY score DESC, row DESC LIMIT %s"
        )
        return sql, [self._match(list(words), scope), *values, limit]

    def _rank_postgresql(
        self, words: Mapping[str, int], scope: Scope, conditions: Sequence[Condition], limit: int
    ) -> tuple[str, list[Any]]:
        """Rank as BM25 does, each word counted once: ts_rank would take frequent words for as telling as rare ones."""
        query = "plainto_tsquery('english', %s)"
        weighed = " + ".join(
            f"CASE WHEN m.search @@ {query} THEN {_weight(count):.6f} ELSE 0 END"
            for count in words.values()
        )
        where, values = _where(conditions)
        anyone = " || ".join([query] * len(words))
        shape = f"{K1} * ({1 - B} + {B} * length(m.search) / {USUAL_LENGTH}.0)"
        sql = (
            f"SELECT row, score FROM (SELECT m.row, ({weighed}) * {K1 + 1} / (1 + {shape}) AS score "  # noqa: S608
            f"FROM {self.table} m WHERE m.search @@ ({anyone}){where} "
            f"ORDER BY m.row DESC LIMIT {RANKED_ROWS}) AS found ORDER BY score DESC, row DESC LIMIT %s"
        )
        return sql, [*words, *words, *values, limit]


def _varint(record: bytes) -> int:
    """Read SQLite's variable-length integer at the start of a record: 7 bits a byte, the first ones first."""
    value = 0
    for byte in record[:8]:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            break
    return value


def _rare(counts: Mapping[str, int]) -> dict[str, int]:
    """Choose the rarest words, as many as have no more rows together than one search ranks."""
    chosen: dict[str, int] = {}
    for word, count in sorted(counts.items(), key=lambda entry: entry[1]):
        if count < FREQUENT and sum(chosen.values()) + count <= RANKED_ROWS:
            chosen[word] = count
    return chosen


def _weight(count: int) -> float:
    return math.log(1 + 2 * FREQUENT / count)


def _scoped(scope: Scope) -> tuple[str, list[Any]]:
    conditions = [one_of(c, [uuid_value(v) for v in values]) for c, values in scope.items()]
    where, values = _where(conditions)
    return where.removeprefix(" AND ") or "TRUE", values


def _where(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    return (
        "".join(f" AND {sql}" for sql, _ in conditions),
        [value for _, values in conditions for value in values],
    )


def _rows(sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, list(values))
        return list(cursor.fetchall())
