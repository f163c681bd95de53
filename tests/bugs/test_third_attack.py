"""What a third hostile tester found in archives, providers, files, forks and schedules; each test is one finding."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError
from django.db.models import QuerySet
from django.utils import timezone

from agents.actor import first_user, keyless_actor
from agents.files import store
from agents.files.directories import CHARS_PER_TOKEN, OPEN_SHARE, directories_text
from agents.files.view import TRUNCATED
from agents.models import Agent, Archive, Group, Identity, McpServer, Passage, Provider
from agents.providers import registry, stored
from agents.services import archives, folders, jobs
from agents.services.embedding import EMBED_ARCHIVE
from conversations.agent_files.messages import moment_of
from conversations.models import Run, RunStatus
from conversations.services import schedules
from souveraine.errors import NotFound
from tests.api.test_folders import attach, read
from tests.conftest import Api, make_agent, wait_for
from tests.turns.test_images import PNG, TEXT, URL, image, ok, shown, web

__all__ = ["web"]


@pytest.fixture
def added() -> Any:
    """Forget what is kept of added providers behind the test."""
    yield
    Provider.objects.all().delete()
    registry.refresh_stored()


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://..", "http://a" + "b" * 70, "http://", "http://x:y/", "http://["]
)
def test_a_provider_at_an_address_that_is_none_is_refused(api: Api, added: None, url: str) -> None:
    body = {"name": "odd", "provider_type": "openai", "api_key": "k", "base_url": url}
    assert api.post("/v1/providers/", body).status == 400
    assert api.post("/v1/providers/check", body).status == 400
    assert not Provider.objects.exists()


@pytest.mark.parametrize("key", ["é", "\U0001f600", "a\r\nX-Other: b"])
def test_a_key_that_no_header_can_carry_is_refused(api: Api, added: None, key: str) -> None:
    body = {
        "name": "odd",
        "provider_type": "openai",
        "api_key": key,
        "base_url": "http://127.0.0.1:9",
    }
    assert api.post("/v1/providers/", body).status == 400
    assert api.post("/v1/providers/check", body).status == 400
    assert api.post("/v1/providers/", {**body, "api_key": "plain"}).status == 200
    row = Provider.objects.get()
    assert api.patch(f"/v1/providers/provider-{row.pk}", {"api_key": key}).status == 400


def test_one_persons_provider_that_cannot_be_built_costs_nobody_their_models(
    api: Api, provider: Any, added: None
) -> None:
    for name, kept in (("gone", {"api_key_encrypted": "of another secret key"}), ("odd", {})):
        Provider.objects.create(
            owner=first_user(), name=name, provider_type="openai", base_url="http://[", **kept
        )
    answer = api.get("/v1/models/")
    assert answer.status == 200
    assert "fake/fake-model" in [model["handle"] for model in answer.json()]
    assert not {"gone", "odd"} & set(stored.kept())


def test_a_message_of_a_file_at_the_edge_of_time_costs_no_agent() -> None:
    for edge in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"):
        assert abs(moment_of(edge) - timezone.now()) < timedelta(minutes=1)
    assert moment_of("2025-01-01T12:00:00+02:00").isoformat() == "2025-01-01T10:00:00+00:00"


def test_two_jobs_do_not_embed_one_archive_at_once(idle_api: Api) -> None:
    actor, archive = keyless_actor(), uuid.uuid4()
    first, second = (jobs.create_job(actor, EMBED_ARCHIVE, {}, subject=archive) for _ in range(2))
    other = jobs.create_job(actor, EMBED_ARCHIVE, {}, subject=uuid.uuid4())
    running = jobs.claim(first.pk)
    assert running is not None
    assert jobs.claim(second.pk) is None, "it would pay the model for the same passages"
    assert jobs.next_due() == other.pk, "nobody turns in circles for what cannot begin"
    assert jobs.claim(other.pk) is not None
    assert jobs.next_due() is None
    jobs.complete(running)
    assert jobs.next_due() == second.pk
    assert jobs.claim(second.pk) is not None


def test_an_image_in_a_scheduled_message_is_fetched_as_in_any_other(
    api: Api, agent: dict[str, Any], provider: Any, web: dict[str, Any]
) -> None:
    web[URL] = ok(PNG)
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "Look"}, image(type="url", url=URL)],
    }
    rule = {"type": "one-time", "scheduled_at": 1_000_000_000_000}
    body = {"messages": [message], "schedule": rule}
    assert api.post(f"/v1/agents/{agent['id']}/schedule", body).status == 200
    schedules.fire_due()
    wait_for(lambda: Run.objects.filter(status=RunStatus.COMPLETED).exists())
    assert shown(provider)[1]["source"]["data"] == TEXT


def test_long_files_leave_the_agent_its_window_and_short_ones_are_shown_whole(
    idle_api: Api,
) -> None:
    agent = make_agent(idle_api)
    folder = idle_api.post("/v1/folders/", {"name": "books"}).json()
    attach(idle_api, agent, folder)
    for number in range(6):
        read(idle_api, folder, f"book{number}.txt", b"a line of a long book\n" * 3000)
    read(idle_api, folder, "note.txt", b"short, and whole")
    row = Agent.objects.get()
    row.context_window = 8_000
    shown = directories_text(row)
    assert len(shown) < 8_000 * OPEN_SHARE * CHARS_PER_TOKEN + 3_000
    assert shown.count('status="open"') == 7
    assert shown.count(TRUNCATED) == 6
    assert "1: short, and whole\n</value>" in shown
    row.context_window = 1_000_000
    assert len(directories_text(row)) > 6 * 25_000


@pytest.mark.parametrize(
    "raised", [IntegrityError("FOREIGN KEY"), Agent.DoesNotExist("gone"), DatabaseError("no rows")]
)
def test_a_row_that_goes_between_a_look_and_a_write_is_a_conflict_and_logged(
    idle_api: Api, monkeypatch: Any, caplog: Any, raised: Exception
) -> None:
    folder = idle_api.post("/v1/folders/", {"name": "f"}).json()
    agent = make_agent(idle_api)

    def attach_late(*args: Any) -> None:
        raise raised

    monkeypatch.setattr(folders, "add_to_agent", attach_late)
    answer = idle_api.patch(f"/v1/agents/{agent['id']}/folders/attach/{folder['id']}")
    assert (answer.status, answer.json()["code"]) == (409, "CONCURRENT_UPDATE")
    assert any(record.exc_info for record in caplog.records)


def test_an_agent_that_goes_while_its_folder_is_deleted_stops_nothing(
    idle_api: Api, monkeypatch: Any
) -> None:
    folder = idle_api.post("/v1/folders/", {"name": "f"}).json()
    agents = [make_agent(idle_api) for _ in range(2)]
    for agent in agents:
        attach(idle_api, agent, folder)
    detach, seen = folders.detach_tool, set()

    def agent_goes_first(actor: Any, agent: Agent, tool: Any) -> Any:
        if not seen:
            Agent.objects.filter(pk=agent.pk).delete()
        seen.add(agent.pk)
        return detach(actor, agent, tool)

    monkeypatch.setattr(folders, "detach_tool", agent_goes_first)
    assert idle_api.delete(f"/v1/folders/{folder['id']}").status == 200
    [left] = idle_api.get("/v1/agents/").json()
    assert "grep_files" not in [tool["name"] for tool in left["tools"]]


def test_an_archive_that_goes_meanwhile_is_not_found(idle_api: Api) -> None:
    agent, archive = make_agent(idle_api), idle_api.post("/v1/archives/", {"name": "a"}).json()
    row, actor = Archive.objects.get(), keyless_actor()
    assert idle_api.delete(f"/v1/archives/{archive['id']}").status == 204
    with pytest.raises(NotFound):
        archives.update_archive(actor, row, {"name": "b"})
    owner = Agent.objects.get()
    assert idle_api.delete(f"/v1/agents/{agent['id']}").status == 200
    with pytest.raises(NotFound):
        archives.archive_for_insert(actor, owner)


def test_a_change_that_comes_after_a_deletion_brings_nothing_back(
    idle_api: Api, added: None, monkeypatch: Any
) -> None:
    key = {"provider_type": "openai", "api_key": "secret", "base_url": "http://127.0.0.1:9"}
    server = {"mcp_server_type": "sse", "server_url": "http://127.0.0.1:9"}
    who = {"identifier_key": "k", "name": "n", "identity_type": "user"}
    made = (
        (Provider, "/v1/providers/", {"name": "p", **key}, {"api_key": "other"}),
        (McpServer, "/v1/mcp-servers/", {"server_name": "s", "config": server}, {"config": server}),
        (Identity, "/v1/identities/", who, {"name": "m"}),
        (Group, "/v1/groups/", {"agent_ids": [], "description": "d"}, {"description": "e"}),
    )
    for model, path, body, change in made:
        row_id = idle_api.post(path, body).json()["id"]
        found = model.objects.get()
        monkeypatch.setattr(QuerySet, "first", lambda self, found=found: found)
        model.objects.all().delete()
        answer = idle_api.patch(f"{path}{row_id}", change)
        monkeypatch.undo()
        assert (answer.status, answer.json()["code"]) == (409, "CONCURRENT_UPDATE"), path
        assert not model.objects.exists(), path


def test_many_passages_are_deleted_in_short_transactions(idle_api: Api, monkeypatch: Any) -> None:
    monkeypatch.setattr(archives, "DELETED_AT_ONCE", 3)
    folder = idle_api.post("/v1/folders/", {"name": "f"}).json()
    read(idle_api, folder, "a.txt", b"a line of a long book\n" * 600)
    kept = idle_api.post("/v1/archives/", {"name": "kept"}).json()
    idle_api.post(f"/v1/archives/{kept['id']}/passages", {"text": "stays"})
    assert Passage.objects.count() > 6
    left: list[int] = []
    monkeypatch.setattr(archives.time, "sleep", lambda _: left.append(Passage.objects.count()))
    assert idle_api.delete(f"/v1/folders/{folder['id']}").status == 200
    assert left[0] - left[1] == 3, "others can write between them"
    assert [passage.text for passage in Passage.objects.all()] == ["stays"]


def test_a_file_whose_bytes_are_gone_says_so(idle_api: Api, monkeypatch: Any) -> None:
    folder = idle_api.post("/v1/folders/", {"name": "f"}).json()
    monkeypatch.setattr(store, "file_path", lambda folder_id, file_id: Path("/nowhere/at/all"))
    monkeypatch.setattr(store, "store", lambda folder_id, file_id, pieces: len(b"".join(pieces)))
    file = read(idle_api, folder, "a.txt", b"text")
    assert (file["processing_status"], "Upload it again" in file["error_message"]) == (
        "error",
        True,
    )
