from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memfs import (
    BlockFile,
    is_pinned,
    label_to_path,
    lookup_paths,
    parse_block_file,
    path_to_label,
    render_block_file,
)
from souveraine.errors import InvalidArgument

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
BLOCKS = st.builds(
    BlockFile,
    label=st.just("persona"),
    value=TEXT,
    id=st.none() | TEXT,
    description=st.none() | TEXT,
    limit=st.none() | st.integers(1, 10**9),
    read_only=st.booleans(),
    metadata=st.dictionaries(TEXT, JSON, max_size=3),
    extra=st.dictionaries(st.sampled_from(["name", "tags", "license"]), JSON, max_size=2),
)


@given(BLOCKS)
@example(BlockFile("persona", "---\nid: x\n---\nnot front matter"))
@example(BlockFile("persona", "\n\n", description="a\n---\nb: *c"))
@example(BlockFile("persona", "a\r\nb\r\n", description="2026-01-01", metadata={"on": "yes"}))
@example(BlockFile("persona", "", description=" \x85\u2028 \ufeff: # ", metadata={"": ["\t"]}))
def test_round_trip_is_exact(block: BlockFile) -> None:
    text = render_block_file(block)
    parsed, warning = parse_block_file("system/persona.md", text)
    assert warning is None
    assert parsed == block
    assert render_block_file(parsed) == text


def test_it_looks_like_people_expect() -> None:
    block = BlockFile("persona", "I am Ani.\n", "block-1", "Who I am", 4000, True, {"a": 1})
    assert render_block_file(block) == (
        "---\nid: block-1\ndescription: Who I am\nlimit: 4000\nread_only: true\n"
        "metadata:\n  a: 1\n---\nI am Ani.\n"
    )


@settings(deadline=None)  # PyYAML is slow where hypothesis raises the recursion limit
@given(st.text(st.sampled_from("-:\n\r {}[]&*!a1\"'#|>%@"), max_size=80))
@example("---\na: &x [1]\nb: *x\n---\nv")
@example("---\n!!python/object:os.system x\n---\n")
@example("---\n- a list\n---\nv")
@example("---\na: 2026-99-99\n---\n")
@example("---\na: !!int ''\nb: !!bool x\n---\n")
@example("---\n" + "[" * 5000 + "\n---\n")
def test_parsing_never_raises_and_loses_nothing(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\nbody"):
        block, warning = parse_block_file("system/persona.md", whole)
        assert whole.endswith(block.value)
        if warning is not None and "whole file" in warning:
            assert block.value == whole


@pytest.mark.parametrize(
    ("front", "expected", "is_warned"),
    [
        ("limit: 0", {"limit": None}, False),
        ("limit: -1", {"limit": None}, True),
        ("limit: many", {"limit": None}, True),
        ("limit: true", {"limit": None}, True),
        ("read_only: 1", {"read_only": False}, True),
        ("read_only: yes", {"read_only": True}, False),
        ("id: 5", {"id": None}, True),
        ("description: 5", {"description": "5"}, False),
        ("metadata: [1]", {"metadata": {}}, True),
        ("metadata: {1: 2026-01-02}", {"metadata": {"1": "2026-01-02"}}, False),
        ("name: x\ntags: [a]", {"extra": {"name": "x", "tags": ["a"]}}, False),
        ("", {"description": None}, False),
    ],
)
def test_front_matter_by_hand(front: str, expected: dict[str, Any], is_warned: bool) -> None:
    block, warning = parse_block_file("system/p.md", f"---\r\n{front}\r\n---\r\nbody\r\n")
    assert block.value == "body\r\n"
    assert {key: getattr(block, key) for key in expected} == expected
    assert (warning is not None) is is_warned


@pytest.mark.parametrize("text", ["plain", "", "--- not a frame", "----\nx\n----\n"])
def test_text_without_front_matter_is_the_value(text: str) -> None:
    assert parse_block_file("system/p.md", text) == (BlockFile("p", text), None)


def test_references_cannot_blow_up() -> None:
    bomb = "---\na: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    _block, warning = parse_block_file("system/p.md", f"{bomb}---\nv")
    assert warning is not None
    assert "references" in warning


def test_front_matter_that_could_not_be_read_back_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Shorten"):
        render_block_file(BlockFile("p", "v", description="x" * 70_000))
    huge = f"---\ndescription: {'x' * 70_000}\n---\nv"
    assert parse_block_file("system/p.md", huge)[0].value == huge


def test_large_floats_survive() -> None:
    block = BlockFile("persona", "v", metadata={"b": 1e300})
    assert parse_block_file("system/persona.md", render_block_file(block))[0] == block


def test_metadata_that_no_database_holds_is_left_out_with_a_warning() -> None:
    block = BlockFile("persona", "v", metadata={"a": math.inf})
    parsed, warning = parse_block_file("system/persona.md", render_block_file(block))
    assert (parsed.value, parsed.metadata) == ("v", {})
    assert "metadata" in (warning or "")


NAMES = st.text(st.sampled_from("ab.-é"), min_size=1, max_size=5).filter(
    lambda name: name not in (".", "..")
)
LABELS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@given(LABELS, st.booleans())
def test_labels_and_paths_are_inverse(label: str, git_memory: bool) -> None:
    path = label_to_path(label, git_memory)
    assert path_to_label(path, git_memory) == label
    assert lookup_paths(label, git_memory)[0] == path


@pytest.mark.parametrize(
    ("label", "path", "git_memory"),
    [
        ("persona", "system/persona.md", False),
        ("projects/garden", "system/projects/garden.md", False),
        ("system/persona", "system/persona.md", True),
        ("notes", "notes.md", True),
        ("skills/cook", "skills/cook/SKILL.md", True),
        ("journal/2026-01-01", "journal/2026-01-01.md", True),
    ],
)
def test_known_pairs(label: str, path: str, git_memory: bool) -> None:
    assert label_to_path(label, git_memory) == path
    assert path_to_label(path, git_memory) == label
    assert is_pinned(path) is path.startswith("system/")


@pytest.mark.parametrize(
    ("path", "git_memory"),
    [
        ("journal/x.md", False), ("system/x.txt", False), ("system/.md", False), ("x.txt", True),
        ("skills/cook/notes.md", True), ("skills/x.md", True), ("skills/a/b/SKILL.md", True),
        (".md", True),
    ],
)  # fmt: skip
def test_files_that_are_no_blocks(path: str, git_memory: bool) -> None:
    assert path_to_label(path, git_memory) is None


@pytest.mark.parametrize("label", ["", "a/../b", "a//b", "a/", ".git/x", "a\0", "x" * 300])
@pytest.mark.parametrize("git_memory", [True, False])
def test_labels_that_no_file_can_have(label: str, git_memory: bool) -> None:
    with pytest.raises(InvalidArgument):
        label_to_path(label, git_memory)
    assert lookup_paths(label, git_memory) == ()


def test_both_ways_to_write_a_label_are_found() -> None:
    assert lookup_paths("persona", True) == ("persona.md", "system/persona.md")
    assert lookup_paths("system/persona", False) == (
        "system/system/persona.md",
        "system/persona.md",
    )
    assert lookup_paths("skills/a/b", True) == ("system/skills/a/b.md",)
