"""What a first newcomer stumbled over; each test is one finding."""

from __future__ import annotations

import logging
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from agents.providers import registry
from agents.providers.errors import ProviderError
from souveraine import checks
from souveraine.testing.fake_provider import FakeProvider, Reply
from tests.conftest import Api, make_agent


def test_a_provider_that_is_set_up_but_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.CONFIG.sources, "OLLAMA_BASE_URL", "default")
    away = FakeProvider("away")
    away.listing_error = ProviderError("llm_error", "Connection error: cannot reach away")
    with registry.override_providers({"away": away, "ollama": away}):
        assert list(registry.problems()) == ["away"]
        assert "cannot reach away" in registry.problems()["away"]


def test_the_index_is_rebuilt_into_an_empty_data_folder(tmp_path: Path) -> None:
    agent = tmp_path / "agents" / "0c24bf7a-0000-4000-8000-000000000000"
    agent.mkdir(parents=True)
    (agent / "agent.json").write_text("{broken")
    done = subprocess.run(
        [sys.executable, "manage.py", "rebuild_index"],
        env={"SOUVERAINE_DATA_DIR": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "no such table" not in done.stderr + done.stdout
    assert "1 files were skipped" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_turn_is_in_the_log(
    api: Api, provider: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent(api)
    provider.enqueue(Reply(error=ProviderError("llm_error", "the model is on fire")))
    with caplog.at_level(logging.WARNING):
        api.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
    assert any(
        "event=run_failed" in r.getMessage() and "on fire" in r.getMessage() for r in caplog.records
    )


def test_the_address_in_a_browser_leads_to_a_page(idle_api: Api) -> None:
    for path in ("/", "/admin"):
        answer = idle_api.get(path)
        assert (answer.status, answer.headers["location"]) == (302, "/admin/")


@pytest.mark.django_db
def test_a_weak_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("abc\n"))
    with pytest.raises(CommandError, match="too short"):
        call_command("createadmin", "root", password_stdin=True)


def test_one_slash_is_no_address() -> None:
    assert "two slashes" in checks.url_fault("htp:/x")
    assert checks.url_fault("localhost:11434") == ""


def test_help_lists_our_commands_with_what_they_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "--help"],
        env={"SOUVERAINE_DATA_DIR": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "serve " in done.stdout
    assert "Make an API key." in done.stdout
    assert "startproject" not in done.stdout
