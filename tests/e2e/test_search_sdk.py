"""Archives, passages and search with the unmodified Python SDK against a served stack with an embedding model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from letta_client import Letta, NotFoundError

from tests.conftest import wait_for
from tests.e2e.conftest import Serve

MODEL = "openai/double-embed"


@pytest.fixture(scope="module")
def client(double: str, tmp_path_factory: Any) -> Iterator[Letta]:
    serve = Serve(
        tmp_path_factory.mktemp("search") / "data",
        {"OPENAI_BASE_URL": double, "SOUVERAINE_EMBEDDING_MODEL": MODEL},
    )
    serve.start()
    yield Letta(base_url=serve.url, api_key="local-dev-key")
    serve.stop()


def test_archives_and_their_passages(client: Letta) -> None:
    assert MODEL in [m.handle for m in client.models.embeddings.list()]
    archive = client.archives.create(name="facts", description="d", embedding=MODEL)
    assert archive.embedding_config.embedding_dim == 64
    assert client.archives.retrieve(archive.id).name == "facts"
    assert client.archives.update(archive.id, name="truths").name == "truths"
    assert [a.id for a in client.archives.list(name="truths")] == [archive.id]

    one = client.archives.passages.create(archive.id, text="Sailing in storms.", tags=["sea"])
    assert len(one.embedding) == 64
    two = client.archives.passages.create_many(archive.id, passages=[{"text": "Cooking."}])
    agent = client.agents.create(name="Ani", model="openai/double")
    client.agents.archives.attach(archive.id, agent_id=agent.id)
    assert [p.id for p in client.agents.passages.list(agent.id)] == [one.id, two[0].id]
    found = client.agents.passages.search(agent.id, query="who sailed?", tags=["sea"])
    assert [r.content for r in found.results] == ["Sailing in storms."]
    found = client.passages.search(query="sailors", archive_id=archive.id)
    assert found[0].passage.id == one.id
    assert found[0].score > 0

    client.archives.passages.delete(two[0].id, archive_id=archive.id)
    client.agents.archives.detach(archive.id, agent_id=agent.id)
    assert list(client.agents.passages.list(agent.id)) == []
    client.archives.delete(archive.id)
    with pytest.raises(NotFoundError):
        client.archives.retrieve(archive.id)


def test_an_agents_own_memory(client: Letta) -> None:
    agent = client.agents.create(name="Own", model="openai/double")
    [kept] = client.agents.passages.create(agent.id, text="Bob likes tea.", tags=["taste"])
    assert client.agents.passages.search(agent.id, query="tea").count == 1
    client.agents.passages.delete(kept.id, agent_id=agent.id)
    assert client.agents.passages.search(agent.id, query="tea").count == 0


def test_what_was_said_is_found_by_words_and_soon_by_meaning(client: Letta) -> None:
    agent = client.agents.create(name="Talk", model="openai/double")
    client.agents.messages.create(agent.id, input="We sailed to Hokkaido in a storm.")
    found = client.messages.search(query="Where did we go? Hokkaido?", agent_id=agent.id)
    assert found[0].content == "We sailed to Hokkaido in a storm."
    assert found[0].agent_id == agent.id

    def by_meaning() -> bool:
        results = client.messages.search(query="sailors", search_mode="vector", agent_id=agent.id)
        return bool(results) and "sailed" in str(results[0].content)

    wait_for(by_meaning, 40)
