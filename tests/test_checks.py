"""Each system check: quiet on a sound configuration, and with its id and a hint on a broken one."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import DatabaseError, connections

from souveraine import checks
from souveraine.config import Config, load

DOCUMENT = (Path(__file__).resolve().parents[1] / "docs" / "deployment.md").read_text()


@pytest.fixture
def configure(settings: Any, tmp_path: Path) -> Any:
    """Sets the configuration that an environment gives, with a data directory of its own."""

    def set_configuration(**environment: str) -> Config:
        environment = {"SOUVERAINE_DATA_DIR": str(tmp_path), **environment}
        settings.CONFIG = load(environment)
        settings.DATA_DIR = settings.CONFIG.data_dir
        settings.REDIS_URL = settings.CONFIG["REDIS_URL"]
        return settings.CONFIG

    set_configuration()
    return set_configuration


def ids(found: list[CheckMessage]) -> list[str]:
    assert all(message.hint for message in found), "each finding says what to do"
    return [str(message.id).removeprefix("souveraine.") for message in found]


def test_a_sound_configuration_has_no_findings(configure: Any) -> None:
    assert checks.local_findings() == []


def test_each_id_is_documented() -> None:
    source = Path(checks.__file__).read_text()
    named = set(re.findall(r'"souveraine\.([EW]\d{3})"', source))
    assert len(named) >= 15
    assert named == set(re.findall(r"^\| `([EW]\d{3})`", DOCUMENT, re.MULTILINE))


def test_data_directory_that_is_a_file(configure: Any, tmp_path: Path, settings: Any) -> None:
    (tmp_path / "file").touch()
    settings.DATA_DIR = tmp_path / "file"
    assert ids(checks.check_data_dir()) == ["E001"]
    settings.DATA_DIR = tmp_path / "file" / "below"
    assert ids(checks.check_data_dir()) == ["E001"]


def test_data_directory_that_is_read_only(configure: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert ids(checks.check_data_dir()) == ["E001"]


def test_data_directory_that_is_still_to_be_made(
    configure: Any, tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = tmp_path / "later" / "server"
    assert checks.check_data_dir() == []


def test_data_directory_of_somebody_else(configure: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert ids(checks.check_data_dir()) == ["W002"]


@pytest.mark.parametrize("name", ["secret_key", "api_key", "config.toml"])
def test_secret_that_others_can_read(configure: Any, tmp_path: Path, name: str) -> None:
    secret = tmp_path / name
    secret.write_text('[server]\napi_key = "s"\n' if name == "config.toml" else "s")
    configure()
    secret.chmod(0o640)
    assert ids(checks.check_data_dir()) == ["W003"]
    secret.chmod(0o600)
    assert checks.check_data_dir() == []


def test_config_without_secrets_may_be_read_by_all(configure: Any, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[server]\nport = 8300\n")
    configure()
    assert checks.check_data_dir() == []


def test_git_missing(configure: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ids(checks.check_programs()) == ["W004"]


def test_unknown_name_with_the_nearest_one(configure: Any) -> None:
    configure(SOUVERAINE_PROT="1")
    found = checks.check_names()
    assert ids(found) == ["W005"]
    assert "SOUVERAINE_PORT" in found[0].msg


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SOUVERAINE_TOOL_TIMEOUT_SECONDS": "1800"}, ["E006"]),
        ({"SOUVERAINE_TURN_TIMEOUT_SECONDS": "9000"}, ["E007"]),
        ({"SOUVERAINE_MODEL_TIMEOUT_SECONDS": "1800"}, ["W009"]),
        ({"SOUVERAINE_TURN_TIMEOUT_SECONDS": "60"}, ["E006", "W009"]),
        ({"SOUVERAINE_TOOL_TIMEOUT_SECONDS": "1799"}, []),
    ],
)
def test_deadlines_that_do_not_nest(
    configure: Any, environment: dict[str, str], expected: list[str]
) -> None:
    configure(**environment)
    assert ids(checks.check_deadlines()) == expected


def test_lease_within_the_busy_timeout_of_sqlite(configure: Any, monkeypatch: Any) -> None:
    configure(SOUVERAINE_LEASE_SECONDS="20")
    for vendor, expected in (("sqlite", ["W008"]), ("postgresql", [])):
        monkeypatch.setattr(type(connections["default"]), "vendor", vendor)
        assert ids(checks.check_deadlines()) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1234/v1", []),
        ("https://models.example/v1", []),
        ("http://[::1]:8080", []),
        ("127.0.0.1:1234/v1", ["W016"]),
        ("models.example/v1", ["W016"]),
        ("htp://models.example", ["E010"]),
        ("http:/models.example", ["E010"]),
        ("http//models.example", ["E010"]),
        ("http://", ["E010"]),
        ("http://models.example:port", ["E010"]),
        ("http://models.example:99999", ["E010"]),
        ("http://models example", ["E010"]),
        ("http://models.example/v1?key=1", ["E010"]),
    ],
)
def test_base_urls(configure: Any, url: str, expected: list[str]) -> None:
    configure(OPENAI_BASE_URL=url)
    assert ids(checks.check_urls()) == expected


def test_a_typing_error_survives_the_normalising_of_ollamas_address(configure: Any) -> None:
    configure(OLLAMA_HOST="http:/box:11434")
    assert ids(checks.check_urls()) == ["E010"]
    configure(OLLAMA_HOST="box:11434")
    assert checks.check_urls() == []


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A Redis URL at which nothing answers: a bound port that does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"redis://:hidden@127.0.0.1:{taken.getsockname()[1]}/0"


def test_services_are_not_asked_before_other_commands(configure: Any, nowhere: str) -> None:
    configure(REDIS_URL=nowhere)
    assert checks.check_services(databases=None) == []


@pytest.mark.django_db
def test_redis_that_does_not_answer(configure: Any, nowhere: str) -> None:
    configure(REDIS_URL=nowhere)
    found = checks.check_services(databases=["default"])
    assert ids(found) == ["E013"]
    assert "hidden" not in found[0].msg


@pytest.mark.django_db
def test_a_redis_of_ours_passes(configure: Any, shared_redis_url: str) -> None:
    configure(REDIS_URL=shared_redis_url)
    assert checks.check_services(databases=["default"]) == []


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"redis_version": "6.2.14", "maxmemory_policy": "noeviction"}, []),
        ({"redis_version": "6.0.16"}, ["E014"]),
        ({"redis_version": "10.0.1"}, []),
        (
            {"redis_version": "7.0.0", "maxmemory_policy": "allkeys-lru", "maxmemory": 1000},
            ["W015"],
        ),
        ({"redis_version": "7.0.0", "maxmemory_policy": "allkeys-lru", "maxmemory": 0}, []),
    ],
)
def test_redis_version_and_eviction(info: dict[str, Any], expected: list[str]) -> None:
    assert ids(checks.redis_faults(info)) == expected


@pytest.mark.django_db
def test_database_that_does_not_answer(configure: Any, monkeypatch: Any) -> None:
    def refuse() -> None:
        raise DatabaseError("connection refused")

    monkeypatch.setattr(connections["default"], "cursor", refuse)
    configure(SOUVERAINE_HOST="0.0.0.0")
    assert ids(checks.check_services(databases=["default"])) == ["E011"]


@pytest.mark.django_db
def test_open_address_without_a_key(configure: Any) -> None:
    configure(SOUVERAINE_HOST="0.0.0.0")
    assert ids(checks.check_services(databases=["default"])) == ["E012"]
    configure(SOUVERAINE_HOST="0.0.0.0", SOUVERAINE_API_KEY="sv-x")
    assert checks.check_services(databases=["default"]) == []


@pytest.mark.django_db
def test_the_check_command_runs_them_all(configure: Any, nowhere: str) -> None:
    configure(REDIS_URL=nowhere, SOUVERAINE_PROT="1")
    with pytest.raises(SystemCheckError) as caught:
        call_command("check")
    assert "souveraine.E013" in str(caught.value)
    assert "souveraine.W005" in str(caught.value)
