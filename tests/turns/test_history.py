"""Whatever is stored, the compiled prompt is valid: property-tested."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.providers.base import ToolCallRequest
from conversations.turn.history import NO_OUTCOME, Item, repair_pairs, valid_arguments

ids = st.sampled_from(["a", "b", "c"])
calls = st.lists(ids, max_size=3).map(
    lambda names: tuple(
        ToolCallRequest(id=f"{n}{i}", name="t", arguments="{}") for i, n in enumerate(names)
    )
)
call_ids = st.builds(lambda n, i: f"{n}{i}", ids, st.integers(0, 2))
items = st.lists(
    st.one_of(
        st.builds(Item, role=st.just("user"), text=st.text(min_size=1, max_size=5)),
        st.builds(Item, role=st.just("assistant"), text=st.text(max_size=5), calls=calls),
        st.builds(Item, role=st.just("tool"), text=st.text(max_size=5), call_id=call_ids),
    ),
    max_size=12,
)


def assert_valid(history: list[Item]) -> None:
    position = 0
    while position < len(history):
        item = history[position]
        position += 1
        assert item.role != "tool", "a return without its call"
        for call in item.calls:
            assert history[position].role == "tool"
            assert history[position].call_id == call.id
            position += 1


@given(items)
def test_each_call_has_exactly_one_return_behind_it(history: list[Item]) -> None:
    repaired = repair_pairs(history)
    assert_valid(repaired)
    assert repair_pairs(repaired) == repaired, "repair is idempotent"
    kept = [i for i in history if i.role == "user"]
    assert [i for i in repaired if i.role == "user"] == kept


@given(items)
def test_no_recorded_return_of_an_asked_call_is_lost(history: list[Item]) -> None:
    repaired = repair_pairs(history)
    for position, item in enumerate(history[:-1]):
        after = history[position + 1]
        if (
            item.role == "assistant"
            and item.calls
            and after.role == "tool"
            and after.call_id == item.calls[0].id
        ):
            assert after in repaired


def test_a_missing_return_is_told_to_the_model() -> None:
    history = [
        Item("user", "x"),
        Item("assistant", calls=(ToolCallRequest("1", "t", "{}"),)),
        Item("user", "y"),
    ]
    assert [i.text for i in repair_pairs(history)] == ["x", "", NO_OUTCOME, "y"]


def test_broken_arguments_do_not_reach_the_provider() -> None:
    assert valid_arguments("{not json") == "{}"
    assert valid_arguments("[1]") == "{}"
    assert valid_arguments('{"a": 1}') == '{"a": 1}'
