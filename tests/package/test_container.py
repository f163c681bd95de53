"""What the image is built from, as far as that can be told without an engine to build it."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from souveraine.config import SETTINGS
from souveraine.management.commands import web, worker

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
KNOWN = {name for s in SETTINGS for name in (s.name, *s.aliases)}
COMMANDS = {"web": web.Command, "worker": worker.Command}


def test_the_image_passes_only_settings_that_exist() -> None:
    named = set(re.findall(r"\b(SOUVERAINE_\w+)=", DOCKERFILE))
    for service in ("web", "worker"):
        named |= set(COMPOSE["services"][service]["environment"])
    assert named
    assert named <= KNOWN


def test_web_and_worker_differ_in_their_command_only() -> None:
    services = COMPOSE["services"]
    for name in COMMANDS:
        assert services[name]["command"] == [name]
    for part in ("image", "environment", "volumes", "extra_hosts"):
        assert services["web"][part] == services["worker"][part]
    assert services["web"]["extra_hosts"] == ["host.docker.internal:host-gateway"]
    assert set(services) == {"web", "worker", "redis", "postgres"}
    assert services["postgres"]["profiles"] == ["postgres"]


def test_containers_are_given_time_to_finish_their_turns() -> None:
    timeout = next(s.default for s in SETTINGS if s.name == "SHUTDOWN_TIMEOUT")
    for name in COMMANDS:
        assert float(COMPOSE["services"][name]["stop_grace_period"].rstrip("s")) > timeout + 5


def test_what_is_copied_is_not_ignored() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    kept = [line[1:] for line in lines if line.startswith("!")]
    copied = re.findall(r"^COPY (?!--from|\.)(\S+)", DOCKERFILE, re.MULTILINE)
    assert copied
    needed = [*copied, "pyproject.toml", "LICENSE", "README.md", "souveraine", "agents", "memfs"]
    for name in needed:
        assert any(fnmatch.fnmatch(name, keep) or name.startswith(f"{keep}/") for keep in kept)
        assert (ROOT / name).exists()


@pytest.fixture
def image(tmp_path: Path) -> Any:
    """Runs the entry point with a `souveraine` that only tells what it was given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "souveraine"
    fake.write_text(
        '#!/bin/sh\necho "args=$* key=${SOUVERAINE_API_KEY-unset} '
        'file=${SOUVERAINE_API_KEY_FILE-unset}"\n'
    )
    fake.chmod(0o755)
    (folder / "python").symlink_to(sys.executable)

    def start(*arguments: str, **settings: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", str(ROOT / "deploy" / "entrypoint.sh"), *arguments],
            env={
                "PATH": f"{folder}:{os.environ['PATH']}",
                "SOUVERAINE_DATA_DIR": str(tmp_path / "data"),
                **settings,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def test_a_key_is_made_once_for_all_containers(image: Any, tmp_path: Path) -> None:
    outputs = [process.communicate(timeout=30)[0] for process in [image("web") for _ in range(4)]]
    key_file = tmp_path / "data" / "api_key"
    assert re.fullmatch(r"sv-[\w-]{40,}\n", key_file.read_text())
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert sum("An API key was made" in output for output in outputs) == 1
    assert all(f"args=web key=unset file={key_file}\n" in output for output in outputs)
    assert key_file.read_text().strip() not in "".join(outputs), "keys do not belong into logs"
    assert [p.name for p in key_file.parent.iterdir()] == ["api_key"]


def test_a_given_key_is_used(image: Any, tmp_path: Path) -> None:
    out, _ = image("serve", "--port", "1", SOUVERAINE_API_KEY="mine").communicate(timeout=30)
    assert out == "args=serve --port 1 key=mine file=unset\n"
    assert not (tmp_path / "data" / "api_key").exists()


def test_a_data_directory_that_cannot_be_made_is_explained(image: Any, tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    process = image("serve")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "cannot be written by uid" in err
