"""What questions say of who and when; snippets; the fusion of two orders."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents.ranking import Weights, fuse
from conversations.search_signals import span_of, speaker_of
from conversations.snippets import SNIPPET_CHARS, snippet_of
from souveraine.lib.full_text import words_of

NOW = datetime(2026, 12, 2, 15, 0, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ("on 2026-03-05", "2026-03-05", "2026-03-06"),
        ("in 2026-03", "2026-03-01", "2026-04-01"),
        ("on 5 March 2026", "2026-03-05", "2026-03-06"),
        ("on the 5th of March, 2026", "2026-03-05", "2026-03-06"),
        ("on March 5th 2025", "2025-03-05", "2025-03-06"),
        ("on Dec 24", "2025-12-24", "2025-12-25"),
        ("in December 2025", "2025-12-01", "2026-01-01"),
        ("in december", "2026-12-01", "2027-01-01"),
        ("during 2024", "2024-01-01", "2025-01-01"),
        ("yesterday", "2026-12-01", "2026-12-02"),
        ("last Tuesday", "2026-12-01", "2026-12-02"),
        ("last week", "2026-11-23", "2026-11-30"),
        ("this week", "2026-11-30", "2026-12-07"),
        ("last month", "2026-11-01", "2026-12-01"),
        ("last year", "2025-01-01", "2026-01-01"),
    ],
)
def test_a_named_time_is_read(query: str, since: str, until: str) -> None:
    span = span_of(f"What did I eat {query}?", NOW)
    assert span is not None
    assert (f"{span.since:%Y-%m-%d}", f"{span.until:%Y-%m-%d}") == (since, until)


def test_times_ago_have_some_play() -> None:
    span = span_of("What did I say two weeks ago?", NOW)
    assert span is not None
    assert (span.since.day, span.until.day) == (15, 22)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "I may march",
        "30 February 2026",
        "2026-99-99",
        "call 12345",
        "0 days",
        "999 years ago " * 3,
        "may 2026x",
    ],
)
def test_what_is_no_time_is_left_alone(query: str) -> None:
    span = span_of(query, NOW)
    assert span is None or span.since < span.until


@pytest.mark.parametrize(
    ("query", "asker", "speaker"),
    [
        ("What did you recommend for my cat?", "user", "assistant"),
        ("What did I recommend?", "user", "user"),
        ("What did I recommend?", "assistant", "assistant"),
        ("my brother's name", "user", "user"),
        ("What did you tell me and what did I say?", "user", None),
        ("Nora's birthday", "user", None),
        ("what the user said about tea", "assistant", "user"),
    ],
)
def test_whose_words_are_meant(query: str, asker: str, speaker: str | None) -> None:
    assert speaker_of(query, asker) == speaker


def test_a_snippet_shows_the_densest_part() -> None:
    text = "tea " + "filler " * 100 + "tea and cake with Nora " + "filler " * 100
    found = snippet_of(text, ["tea", "cakes", "nora"])
    assert found.position == text.index("tea and cake")
    assert "tea and cake with Nora" in found.text
    assert found.text.startswith("…")
    assert found.text.endswith("…")
    assert len(found.text) <= SNIPPET_CHARS + 2
    assert snippet_of("short", []).text == "short"
    assert snippet_of("short", ["absent"]).position is None


def test_fusion_weighs_scores() -> None:
    by_text, by_vector = [(1, 10.0), (2, 9.0)], [(3, 0.9), (2, 0.8), (1, 0.1)]
    assert [r.row for r in fuse(by_text, by_vector, Weights(1.0, 1.0))] == [2, 3, 1]
    assert [r.row for r in fuse(by_text, by_vector, Weights(1.0, 0.0))] == [1, 2, 3]
    best = fuse(by_text, by_vector, Weights(1.0, 1.0))[0]
    assert (best.text_rank, best.vector_rank) == (2, 2)
    assert fuse([], [], Weights(1.0, 1.0)) == []


def test_stop_words_go_unless_there_is_nothing_else() -> None:
    assert words_of("Where did the Cat go, cat?") == ["cat", "go"]
    assert words_of("What is it?") == ["what", "is", "it"]
    assert words_of('"" -- *') == []
