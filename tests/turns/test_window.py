"""Where the window may begin, and what estimates learn: property-tested, without a database."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.models import Message
from conversations.services.summaries import excerpts, fallback_summary
from conversations.services.tokens import Calibration
from conversations.services.window import choose_start

step = st.sampled_from(["user", "answer", "calls", "calls and a remark", "lost calls", "waiting"])


def rows_of(steps: list[str]) -> list[Message]:
    rows: list[Message] = []

    def add(role: str, **fields: object) -> None:
        rows.append(Message(role=role, sequence=len(rows) + 2, text="word " * 9, **fields))

    for number, kind in enumerate(steps):
        ids = [f"{number}a", f"{number}b"]
        if kind in ("user", "answer"):
            add("user" if kind == "user" else "assistant")
            continue
        add("assistant", tool_calls=[{"id": i, "name": "t", "arguments": "{}"} for i in ids])
        if kind == "calls and a remark":
            add("approval")
            add("user")
        if kind.startswith("calls"):
            for call_id in ids:
                add("tool", tool_call_id=call_id)
    return rows


@settings(deadline=None)  # a busy machine is no counterexample
@given(st.lists(step, max_size=12), st.integers(0, 400), st.integers(0, 400), st.booleans())
def test_a_cut_parts_no_call_from_its_return_and_drops_no_open_one(
    steps: list[str], keep: int, most: int, may_empty: bool
) -> None:
    rows = rows_of(steps)
    costs = [10] * len(rows)
    start = choose_start(rows, costs, keep_tokens=keep, most_tokens=most, may_empty=may_empty)
    assert 0 <= start <= len(rows)
    called = {c["id"] for row in rows[start:] for c in row.tool_calls}
    assert {r.tool_call_id for r in rows[start:] if r.role == "tool"} <= called
    calling = [i for i, row in enumerate(rows) if row.role == "assistant"]
    if rows and rows[-1].role == "assistant" and rows[-1].tool_calls:
        assert start <= calling[-1], "a message whose calls wait stays"
    if rows and not may_empty:
        assert start < len(rows), "the newest message stays"


@settings(deadline=None)  # a busy machine is no counterexample
@given(st.lists(step, min_size=1, max_size=40), st.integers(100, 900))
def test_texts_are_bounded(steps: list[str], limit: int) -> None:
    rows = rows_of(steps)
    assert len(excerpts(rows, limit)) <= limit
    previous = Message(role="summary", text="before " * 500)
    assert len(fallback_summary(previous, rows, limit)) <= limit


@settings(deadline=None)  # a busy machine is no counterexample
@given(st.integers(10, 50_000), st.floats(0.3, 9.0))
def test_a_refused_estimate_stands_for_more_than_the_window(estimate: int, ratio: float) -> None:
    known = Calibration("m", ratio=ratio)
    window = 2 * known.tokens(estimate) // 3 + 1000
    known.refused(estimate, window, "too large")
    assert known.tokens(estimate) > window or known.ratio == 12.0
    known.counted(estimate, estimate)
    for _ in range(100):
        known.counted(estimate, estimate)
    assert known.ratio == 1.0, "what was wrong is unlearnt"


def test_the_numbers_of_a_refusal_are_taken_up() -> None:
    texts = {
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens": 4096,
        "prompt is too long: 210000 tokens > 200000 maximum": 200_000,
        'exceeds the available context size (2048 tokens) {"n_prompt_tokens":3001,"n_ctx":2048}': 2048,
        "context_length_exceeded": None,
    }
    for text, limit in texts.items():
        known = Calibration("m")
        known.refused(4000, 1_000_000, text)
        assert known.limit == limit, text
