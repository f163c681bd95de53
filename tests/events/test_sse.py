from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from souveraine.events import sse

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["\u2028\u2029\x85", "\r\n", "data: x\n\n", "[DONE]", "\\\u2028"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=15,
)


@given(st.lists(JSON_VALUES, max_size=5), st.sampled_from([None, 2]), st.booleans())
def test_decoding_gives_back_what_was_encoded(
    values: list[object], indent: int | None, crlf: bool
) -> None:
    texts = [json.dumps(value, ensure_ascii=False, indent=indent) for value in values]
    if crlf:
        texts = [text.replace("\n", "\r\n") for text in texts]
    stream = b"".join(sse.data_frame(text.encode()) + sse.COMMENT_PING for text in texts)
    frames = sse.decode(stream)
    assert [json.loads(frame.data) for frame in frames] == values
    assert all(frame.event == frame.id == "" for frame in frames)


@given(JSON_VALUES)
def test_compact_frames_are_one_line_for_every_reader(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    frame = sse.data_frame(text.encode()).decode()
    assert frame.endswith("\n\n")
    assert len(frame.splitlines()) == 2


@given(JSON_VALUES, st.integers(0, 10**9))
def test_names_and_ids(value: object, number: int) -> None:
    text = json.dumps(value).encode()
    stream = sse.named_frame("delta", text, number) + sse.error_frame(text)
    first, second = sse.decode(stream)
    assert (first.event, first.id, second.event) == ("delta", str(number), "error")
    assert json.loads(first.data) == json.loads(second.data) == value


def test_exact_bytes() -> None:
    assert sse.data_frame(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert sse.error_frame(b"{}") == b"event: error\ndata: {}\n\n"
    assert sse.named_frame("x", b"{}", 7) == b"id: 7\nevent: x\ndata: {}\n\n"
    assert sse.decode(sse.DONE) == [sse.Frame("", "[DONE]", "")]


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\u2028b", "a\0b"])
def test_names_cannot_break_the_framing(name: str) -> None:
    with pytest.raises(ValueError, match="single lines"):
        sse.named_frame(name, b"{}")


def test_open_tail_is_left_out() -> None:
    assert sse.decode(b"data: 1\n\ndata: 2\n") == [sse.Frame("", "1", "")]
