"""Reasoning that a model writes into its answer between tags (B39)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.turn.think_tags import Piece, ThinkTagSplitter
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api

TAG = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)


def split(*chunks: str) -> list[Piece]:
    """Split chunks; neighbours of one kind are joined."""
    splitter = ThinkTagSplitter()
    pieces = [piece for chunk in chunks for piece in splitter.feed(chunk)] + splitter.end()
    joined: list[Piece] = []
    for kind, text in pieces:
        if joined and joined[-1][0] == kind:
            text = joined.pop()[1] + text
        joined.append((kind, text))
    return joined


def test_it_works() -> None:
    assert split("<think>\nhmm\n</think>\n\nHello.") == [("reasoning", "hmm"), ("text", "Hello.")]


@pytest.mark.parametrize(
    ("answer", "pieces"),
    [
        ("<thinking>a</thinking>b", [("reasoning", "a"), ("text", "b")]),
        ("\n <THINK>a</Think> b", [("reasoning", "a"), ("text", "b")]),
        ("<think></think>\n\nb", [("text", "b")]),
        ("<think>\n\n</think>", []),
        ("<think>a</think>\n    code", [("reasoning", "a"), ("text", "    code")]),
        ("<think>a <b> </thinking> </thi", [("reasoning", "a <b> </thinking> </thi")]),
        ("<think>a</think><think>b</think>c", [("reasoning", "ab"), ("text", "c")]),
        (
            "One.\n<think>a</think>\nTwo.",
            [("text", "One.\n"), ("reasoning", "a"), ("text", "Two.")],
        ),
        ("```\nx\n```\n<think>a", [("text", "```\nx\n```\n"), ("reasoning", "a")]),
        ("a `b\n\n<think>c", [("text", "a `b\n\n"), ("reasoning", "c")]),
    ],
)
def test_tags_at_the_start_of_answer_or_line_open_reasoning(
    answer: str, pieces: list[Piece]
) -> None:
    assert split(answer) == pieces


@pytest.mark.parametrize(
    "answer",
    [
        "Write <think>so</think>.",
        "`<think>` opens it",
        "a `b\n<think>` c",
        "```html\n<think>a</think>\n```",
        "~~~\n```\n<think>\n~~~",
        "````\n```\n<think>a</think>\n````",
        "```\n<think>no end",
        "x\n    <think>indented code",
        "x\n\t<think>",
        "<think now>a",
        "<thin",
        "< think>",
        "a</think>b",
        "\n\n  <",
        "   ",
        "\u00a0\u2028 İ<thin\u212a>",
    ],
)
def test_other_places_are_text(answer: str) -> None:
    assert split(answer) == [("text", answer)]
    assert split(*answer) == [("text", answer)]


def test_what_can_be_no_tag_any_more_is_not_held_back() -> None:
    splitter = ThinkTagSplitter()
    assert splitter.feed("<thi") == []
    assert splitter.feed("s is") == [("text", "<this is")]
    assert splitter.feed(" <th") == [("text", " <th")]
    assert ThinkTagSplitter().feed("<think>a </thi") == [("reasoning", "a")]


def test_text_goes_on_after_an_end_in_the_middle() -> None:
    splitter = ThinkTagSplitter()
    first = splitter.feed("\n\n<th") + splitter.end()
    assert first == [("text", "\n\n<th")]
    assert splitter.feed("ink>x\n<think>y") == [("text", "ink>x\n"), ("reasoning", "y")]


TAGS = ["<think>", "</think>", "<thinking>", "</thinking>"]
WORDS = [*TAGS, "<", "/", "thi", "nk>", ">", "`", "```", "~~~", "````", "a", "é", "İ"]
fragments = st.lists(
    st.sampled_from([*WORDS, "\n", " ", "  ", "\t", "\r\n", "word word"]), max_size=30
).map("".join)


@given(fragments, st.data())
def test_chunking_changes_nothing(answer: str, data: Any) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=8).map(sorted))
    chunks = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    whole = split(answer)
    assert split(*chunks) == whole
    assert split(*answer) == whole


@given(fragments)
def test_nothing_but_tags_and_the_space_around_them_goes(answer: str) -> None:
    # Pieces are kept apart, else what a tag divided could look like a tag.
    given_out = "\0".join(text for _, text in split(answer))
    left = [re.sub(r"[\s\0]", "", TAG.sub("", text)) for text in (answer, given_out)]
    assert left[0] == left[1]


@given(st.text(alphabet=st.characters(exclude_characters="<")) | fragments)
def test_text_without_tags_comes_through_unchanged(answer: str) -> None:
    plain = TAG.sub("", TAG.sub("", answer)).replace("<", "")
    assert "".join(text for _, text in split(plain)) == plain
    assert {kind for kind, _ in split(plain)} <= {"text"}


def test_tags_become_reasoning_messages_and_are_not_sent_back(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(
        Reply(text="<think>secret plan </think> Good day.", reasoning="native "),
        "<thi",
    )

    def send(text: str) -> list[Any]:
        body = {"messages": [{"role": "user", "content": text}], "stream_tokens": True}
        frames: list[Any] = api.post(f"/v1/agents/{agent['id']}/messages/stream", body).frames()
        return [f for f in frames if isinstance(f, dict)]

    frames = send("Hello")
    reasoning = "".join(f.get("reasoning", "") for f in frames)
    assert reasoning.split() == ["native", "secret", "plan"]
    assert "".join(f.get("content") or "" for f in frames) == "Good day."
    frames = send("Again")
    assert "".join(f.get("content") or "" for f in frames) == "<thi", "held text comes at the end"
    assert "secret" not in str(provider.requests[1].messages)


def test_held_text_comes_before_a_tool_call(api: Api, agent: dict[str, Any], provider: Any) -> None:
    call = Call("memory_insert", {"label": "human", "new_string": "x"})
    provider.enqueue(Reply(text="<", tool_calls=[call]), "Done.")
    body = {"messages": [{"role": "user", "content": "x"}], "stream_tokens": True}
    types = api.post(f"/v1/agents/{agent['id']}/messages/stream", body).types()
    assert types[:2] == ["assistant_message", "tool_call_message"]
