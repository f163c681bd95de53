from __future__ import annotations

from pathlib import Path

import pytest

from souveraine.config import SETTINGS, Setting

ROOT = Path(__file__).resolve().parents[2]
ENV_EXAMPLE = (ROOT / ".env.example").read_text()
DOCUMENT = (ROOT / "docs" / "configuration.md").read_text()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_each_setting_is_documented_with_its_aliases_and_key(setting: Setting) -> None:
    assert f"# {setting.name}=" in ENV_EXAMPLE
    assert f"| `{setting.name}`" in DOCUMENT
    row = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| `{setting.name}`"))
    for alias in setting.aliases:
        assert f"`{alias}`" in row.split("|")[1]
    assert ("secret" in row.split("|")[1]) == setting.secret
    if setting.name != "SOUVERAINE_DATA_DIR":
        assert f"`{setting.key}`" in row


@pytest.mark.parametrize(
    "setting", [s for s in SETTINGS if s.default not in ("", [])], ids=lambda s: s.name
)
def test_the_documented_default_is_the_real_one(setting: Setting) -> None:
    default = setting.default
    text = f"{default:g}" if isinstance(default, float) else str(default)
    if isinstance(default, bool):
        text = "on" if default else "off"
    row = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| `{setting.name}`"))
    assert f"`{text}`" in row.split("|")[3]
    assert f"# {setting.name}={text}" in ENV_EXAMPLE


def test_no_setting_is_documented_that_does_not_exist() -> None:
    known = {s.name for s in SETTINGS}
    named = {line[2:].split("=")[0] for line in ENV_EXAMPLE.splitlines() if "=" in line[:40]}
    assert {name for name in named if name.isupper()} <= known


def test_lock_files_name_versions_only() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        for line in (ROOT / name).read_text().splitlines():
            if line.startswith(("#", "-r ")):
                continue
            requirement = line.split(";")[0]
            assert requirement.count("==") == 1, line
            assert "/" not in requirement, line
            assert "@" not in requirement, line
