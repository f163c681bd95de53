from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfs import MemoryRepository, check_path, resolve_inside
from memfs.paths import is_allowed, is_harmless
from souveraine.errors import InvalidArgument
from tests.memfs.conftest import AGENT

ATTACKS = [
    "", ".", "..", "/etc/passwd", "../x.md", "a/../../x.md", "a/..", "a//b", "a/", "./a",
    "a\0b", "a\nb.md", "a\\..\\b", "..\\x", "C:/x", "c:x", "\ud800.md",
    ".git", ".git/config", "a/.git/hooks/x", ".GIT/config", ".Git", ".git ", ".git.", ".git . .",
    ".git::$INDEX_ALLOCATION", "git~1", "GIT~2/x", ".g\u200cit/config", "\uff0egit/config",
    ".gitmodules", ".GitAttributes", "x" * 256, "ü" * 128, "/".join("a" * 33), "a/" * 600 + "b",
]  # fmt: skip


@pytest.mark.parametrize("path", ATTACKS, ids=ascii)
def test_attacks_are_refused_everywhere(memory: MemoryRepository, path: str) -> None:
    with pytest.raises(InvalidArgument, match=r"path|Path"):
        check_path(path)
    for call in (
        lambda: memory.read(path),
        lambda: memory.exists(path),
        lambda: memory.write(path, "x", AGENT),
        lambda: memory.write_many({"ok.md": "x", path: "x"}, AGENT, "m"),
        lambda: memory.transform(path, lambda _old: "x", AGENT),
        lambda: memory.delete(path, AGENT),
        lambda: resolve_inside(memory.work_tree, path),
    ):
        with pytest.raises(InvalidArgument):
            call()
    assert len(memory.log()) == 1


@pytest.mark.parametrize(
    "path", ["a.md", "system/ü 😀.md", ".gitignore", "a.git/x", ".github/x.md", "...", "~x", "-rf"]
)
def test_ordinary_names_are_allowed(path: str) -> None:
    assert check_path(path) == path


def test_resolve_refuses_links_and_returns_places(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "inside").symlink_to(tmp_path / "d")
    (tmp_path / "out").symlink_to("/")
    assert resolve_inside(tmp_path, "d/new/x.md") == tmp_path / "d/new/x.md"
    for path in ("out/etc/passwd", "inside/x.md", "out"):
        with pytest.raises(InvalidArgument, match="symbolic link"):
            resolve_inside(tmp_path, path)


@given(st.text(alphabet=st.sampled_from("./\\gGiIt~1: \0a"), max_size=12))
def test_what_is_allowed_stays_inside(path: str) -> None:
    if is_allowed(path):
        names = path.split("/")
        assert is_harmless(path)
        assert ".." not in names
        assert all(name.lower().rstrip(" .") != ".git" for name in names)
        assert not Path(path).is_absolute()
