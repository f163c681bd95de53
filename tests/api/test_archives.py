"""Archives and passages over the API: what is kept is listed, found, shared, and goes when it should."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.archive_selectors import PassageQuery, archives_of_agent, list_passages, search_passages
from agents.jobs.running import work
from agents.models import Agent, AgentArchive, Archive, Job, Passage, PassageTag
from souveraine.errors import Unavailable
from tests.conftest import Api, make_agent, wait_for

NO_ID = "00000000-0000-4000-8000-000000000000"
ARCHIVE_KEYS = set(
    (  # noqa: SIM905
        "created_by_id last_updated_by_id created_at updated_at name description organization_id "
        "vector_db_provider embedding_config metadata id"
    ).split()
)
PASSAGE_KEYS = set(
    (  # noqa: SIM905
        "created_by_id last_updated_by_id created_at updated_at is_deleted organization_id archive_id source_id "
        "file_id file_name metadata tags id text embedding embedding_config"
    ).split()
)


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> dict[str, Any]:
    name = "api" if "api" in request.fixturenames else "idle_api"
    return make_agent(request.getfixturevalue(name))


@pytest.fixture
def archive(idle_api: Api) -> dict[str, Any]:
    return idle_api.post("/v1/archives", {"name": "facts"}).json()  # type: ignore[no-any-return]


def memory(agent: dict[str, Any], rest: str = "") -> str:
    return f"/v1/agents/{agent['id']}/archival-memory{rest}"


def insert(api: Api, agent: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
    answer = api.post(memory(agent), {"text": text, **more})
    assert answer.status == 200, answer.body
    return answer.json()[0]  # type: ignore[no-any-return]


def found(api: Api, agent: dict[str, Any], query: str) -> list[str]:
    answer = api.get(memory(agent, f"/search?query={query}"))
    assert answer.status == 200, answer.body
    assert answer.json()["count"] == len(answer.json()["results"])
    return [result["content"] for result in answer.json()["results"]]


def test_it_works(idle_api: Api, agent: dict[str, Any]) -> None:
    passage = insert(
        idle_api, agent, "Bob's sister Ada plays the cello.", tags=["family", "family"]
    )
    assert set(passage) == PASSAGE_KEYS
    assert passage["id"].startswith("passage-")
    assert passage["tags"] == ["family"]
    assert passage["embedding"] is None
    assert idle_api.get(memory(agent)).json() == [passage]
    assert found(idle_api, agent, "who+plays+cello") == ["Bob's sister Ada plays the cello."]
    [archive] = idle_api.get(f"/v1/archives?agent_id={agent['id']}").json()
    assert archive["id"] == passage["archive_id"]
    assert set(archive) >= ARCHIVE_KEYS
    assert idle_api.delete(memory(agent, f"/{passage['id']}")).status == 200
    assert idle_api.get(memory(agent)).json() == []
    assert found(idle_api, agent, "cello") == []
    assert idle_api.delete(memory(agent, f"/{passage['id']}")).status == 404


def test_an_archive_is_created_changed_listed_and_deleted(idle_api: Api) -> None:
    made = [idle_api.post("/v1/archives/", {"name": f"a{i}"}).json() for i in range(5)]
    changed = idle_api.patch(f"/v1/archives/{made[0]['id']}", {"description": "of old"})
    assert changed.json()["description"] == "of old"
    assert changed.json()["name"] == "a0"
    assert idle_api.get(f"/v1/archives/{made[0]['id']}").json() == changed.json()
    pages, after = [], ""
    while batch := idle_api.get(f"/v1/archives?limit=2&order=asc{after}").json():
        pages += [a["name"] for a in batch]
        after = f"&after={batch[-1]['id']}"
    assert pages == [f"a{i}" for i in range(5)]
    assert [a["name"] for a in idle_api.get("/v1/archives?name=a3").json()] == ["a3"]
    gone = idle_api.delete(f"/v1/archives/{made[0]['id']}")
    assert (gone.status, gone.body) == (204, b"")
    assert idle_api.delete(f"/v1/archives/{made[0]['id']}").status == 404


def test_passages_come_in_batches_with_their_metadata(
    idle_api: Api, archive: dict[str, Any]
) -> None:
    path = f"/v1/archives/{archive['id']}/passages"
    one = idle_api.post(path, {"text": "One.", "metadata": {"page": 1}, "created_at": "2026-01-02"})
    assert one.json()["metadata"] == {"page": 1}
    assert one.json()["created_at"] == "2026-01-02T00:00:00.000000Z"
    batch = idle_api.post(f"{path}/batch", {"passages": [{"text": "Two."}, {"text": "Three."}]})
    assert [p["text"] for p in batch.json()] == ["Two.", "Three."]
    bad = idle_api.post(f"{path}/batch", {"passages": [{"text": "Four."}, {"text": ""}]})
    assert bad.status == 422
    assert Passage.objects.count() == 3
    assert idle_api.delete(f"{path}/{one.json()['id']}").status == 204
    assert idle_api.delete(f"{path}/passage-{NO_ID}").status == 404


def test_a_shared_archive_is_found_by_each_agent_it_is_attached_to(
    idle_api: Api, agent: dict[str, Any], archive: dict[str, Any]
) -> None:
    other = make_agent(idle_api, name="other")
    idle_api.post(f"/v1/archives/{archive['id']}/passages", {"text": "The code is swordfish."})
    for each in (agent, other, other):
        attached = idle_api.patch(f"/v1/agents/{each['id']}/archives/attach/{archive['id']}")
        assert (attached.status, attached.json()) == (200, None)
    holders = idle_api.get(f"/v1/archives/{archive['id']}/agents").json()
    assert {a["id"] for a in holders} == {agent["id"], other["id"]}
    assert found(idle_api, other, "swordfish") == ["The code is swordfish."]
    insert(idle_api, other, "Swordfish are large.")
    assert len(found(idle_api, agent, "swordfish")) == 2
    for _ in range(2):
        gone = idle_api.patch(f"/v1/agents/{other['id']}/archives/detach/{archive['id']}")
        assert (gone.status, gone.json()) == (200, None)
    assert found(idle_api, other, "swordfish") == []


def test_deleting_an_agent_takes_its_own_archive_and_leaves_shared_ones(
    idle_api: Api, agent: dict[str, Any], archive: dict[str, Any]
) -> None:
    own = insert(idle_api, agent, "Mine alone.", tags=["x"])
    idle_api.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}")
    lent = make_agent(idle_api, name="lender")
    shared = insert(idle_api, lent, "A shared secret.")
    idle_api.patch(f"/v1/agents/{agent['id']}/archives/attach/{shared['archive_id']}")
    assert idle_api.delete(f"/v1/agents/{lent['id']}").status == 200
    assert found(idle_api, agent, "secrets") == ["A shared secret."]
    assert idle_api.delete(f"/v1/agents/{agent['id']}").status == 200
    left = {a["id"] for a in idle_api.get("/v1/archives").json()}
    assert own["archive_id"] not in left
    assert {archive["id"], shared["archive_id"]} == left
    assert PassageTag.objects.count() == 0


def test_a_list_goes_forth_and_back_and_keeps_those_with_all_words(
    idle_api: Api, agent: dict[str, Any]
) -> None:
    made = [insert(idle_api, agent, f"Fact {i} of the red fox.") for i in range(5)]
    insert(idle_api, agent, "A red herring.")
    ids = [p["id"] for p in made]
    page = idle_api.get(memory(agent, f"?limit=2&after={ids[1]}")).json()
    assert [p["id"] for p in page] == ids[2:4]
    page = idle_api.get(memory(agent, f"?limit=2&before={ids[3]}")).json()
    assert [p["id"] for p in page] == ids[1:3]
    newest = idle_api.get(memory(agent, "?limit=1&ascending=false")).json()
    assert newest[0]["text"] == "A red herring."
    assert [p["id"] for p in idle_api.get(memory(agent, "?search=red+fox")).json()] == ids
    assert idle_api.get(memory(agent, f"?after=passage-{NO_ID}")).status == 404
    assert idle_api.get(memory(agent, "?after=nonsense")).status == 422


def test_tags_and_dates_narrow_a_search(idle_api: Api, agent: dict[str, Any]) -> None:
    for day, tags in ((1, ["a"]), (2, ["a", "b"]), (3, ["b"]), (4, None)):
        insert(idle_api, agent, f"Note {day}.", tags=tags, created_at=f"2026-03-0{day}T12:00:00")

    def notes(**wanted: Any) -> list[str]:
        answer = idle_api.post("/v1/passages/search", {"agent_id": agent["id"], **wanted})
        assert answer.status == 200, answer.body
        return sorted(r["passage"]["text"] for r in answer.json())

    for query in ({}, {"query": "note"}):
        assert notes(tags=["a", "b"], **query) == ["Note 1.", "Note 2.", "Note 3."]
        assert notes(tags=["a", "b"], tag_match_mode="all", **query) == ["Note 2."]
        assert notes(start_date="2026-03-03", **query) == ["Note 3.", "Note 4."]
        assert notes(end_date="2026-03-03T00:00:00Z", tags=["b"], **query) == ["Note 2."]
        assert len(notes(limit=2, **query)) == 2


def test_a_search_result_has_score_and_places(idle_api: Api, archive: dict[str, Any]) -> None:
    path = f"/v1/archives/{archive['id']}/passages"
    idle_api.post(f"{path}/batch", {"passages": [{"text": "Red fox."}, {"text": "Red hen, red."}]})
    results = idle_api.post("/v1/passages/search", {"query": "fox red"}).json()
    assert [r["passage"]["text"] for r in results] == ["Red fox.", "Red hen, red."]
    assert results[0]["score"] > results[1]["score"] > 0
    assert results[0]["metadata"] == {"fts_rank": 1, "vector_rank": None}


@pytest.mark.parametrize(
    "query", ['"', "AND", "NOT x", "text:x", "a* b^2", "(", "'; --", "%", "\\", "NEAR(a b)", "🦊"]
)
def test_a_query_is_never_syntax(idle_api: Api, agent: dict[str, Any], query: str) -> None:
    insert(idle_api, agent, "Nothing like it.")
    assert idle_api.post("/v1/passages/search", {"query": query}).status == 200
    assert idle_api.get(memory(agent, f"/search?query={quote(query)}")).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": 5},
        {"text": ""},
        {"text": "a\u0000b"},
        {"text": "x", "tags": "x"},
        {"text": "x", "tags": ["x" * 256]},
        {"text": "x", "created_at": "yesterday"},
        {"text": "x", "created_at": "0001-01-01T00:00:00+10:00"},
        {"text": "x", "created_at": 10**30},
    ],
)
def test_a_bad_passage_is_refused_and_leaves_nothing(
    idle_api: Api, agent: dict[str, Any], body: dict[str, Any]
) -> None:
    assert idle_api.post(memory(agent), body).status == 422
    assert (Passage.objects.count(), Archive.objects.count()) == (0, 0)


def test_two_first_inserts_at_once_make_one_archive(idle_api: Api, agent: dict[str, Any]) -> None:
    threads = [
        threading.Thread(target=insert, args=(idle_api, agent, f"Fact {i}.")) for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert AgentArchive.objects.count() == Archive.objects.count() == 1
    assert len(idle_api.get(memory(agent)).json()) == 6


def test_lists_and_searches_ask_the_same_number_of_times_however_much_there_is(
    idle_api: Api, agent: dict[str, Any]
) -> None:
    row = Agent.objects.get()

    def asked() -> list[int]:
        numbers = []
        for act in (
            lambda: list_passages(archives_of_agent(row), search="f", ascending=True, limit=50),
            lambda: list_passages(archives_of_agent(row), search=None, ascending=True, limit=50),
            lambda: search_passages(archives_of_agent(row), PassageQuery(query="what fact 1")),
        ):
            with CaptureQueriesContext(connection) as queries:
                [(p if isinstance(p, Passage) else p.passage).archive.name for p in act()]
            numbers.append(len(queries))
        return numbers

    insert(idle_api, agent, "Fact 1.", tags=["a"])
    few = asked()
    path = f"/v1/archives/archive-{Archive.objects.get().pk}/passages/batch"
    many = [{"text": f"Fact {i}.", "tags": ["a", "b"]} for i in range(60)]
    assert idle_api.post(path, {"passages": many}).status == 200
    assert asked() == few
    assert max(few) <= 5


def test_embeddings_are_made_when_the_model_is_there(
    idle_api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.embedding_models = ["small"]
    refused = idle_api.post("/v1/archives", {"name": "e", "embedding": "fake/none"})
    assert refused.status == 404
    [listed] = idle_api.get("/v1/models/embedding").json()
    assert (listed["handle"], listed["embedding_dim"]) == ("fake/small", 64)
    made = idle_api.post("/v1/archives", {"name": "e", "embedding": "fake/small"}).json()
    assert made["embedding_config"]["embedding_dim"] == 64
    path = f"/v1/archives/{made['id']}/passages"
    passage = idle_api.post(path, {"text": "Sailing in storms."}).json()
    assert len(passage["embedding"]) == 64
    assert passage["embedding_config"]["handle"] == "fake/small"
    idle_api.post(path, {"text": "Cooking for guests."})
    results = idle_api.post("/v1/passages/search", {"query": "sailors"}).json()
    assert results[0]["passage"]["text"] == "Sailing in storms."
    assert results[0]["metadata"] == {"fts_rank": None, "vector_rank": 1}


def test_a_model_that_fails_costs_the_vector_but_not_the_passage(
    idle_api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.embedding_models = ["small"]
    made = idle_api.post("/v1/archives", {"name": "e", "embedding": "fake/small"}).json()
    provider.embedding_error = Unavailable("The model is away.")
    path = f"/v1/archives/{made['id']}/passages"
    passage = idle_api.post(path, {"text": "Sailing in storms."})
    assert passage.status == 200
    assert passage.json()["embedding"] is None
    results = idle_api.post("/v1/passages/search", {"query": "storm"}).json()
    assert [r["passage"]["text"] for r in results] == ["Sailing in storms."]


def test_an_agents_embedding_model_that_is_not_there_is_never_replaced_by_another(
    idle_api: Api, provider: Any
) -> None:
    provider.embedding_models = ["small"]
    absent = make_agent(idle_api, embedding="openai/text-embedding-3-small")
    assert insert(idle_api, absent, "No vector.")["embedding"] is None
    assert provider.embedded == []
    present = make_agent(idle_api, embedding="fake/small")
    assert insert(idle_api, present, "A vector.")["embedding"] is not None


def test_the_tools_keep_and_find(idle_api: Api, agent: dict[str, Any]) -> None:
    for name in ("archival_memory_insert", "archival_memory_search"):
        [tool] = idle_api.get(f"/v1/tools?name={name}").json()
        idle_api.patch(f"/v1/agents/{agent['id']}/tools/attach/{tool['id']}")

    def run(name: str, **arguments: Any) -> dict[str, Any]:
        path = f"/v1/agents/{agent['id']}/tools/archival_memory_{name}/run"
        return idle_api.post(path, {"args": arguments}).json()  # type: ignore[no-any-return]

    kept = run("insert", content="Bob likes tea.", tags=["taste"])
    assert kept["status"] == "success"
    assert "passage-" in kept["func_return"]
    answer = run("search", query="What does Bob like to drink? tea")["func_return"]
    assert "(tags: taste) Bob likes tea." in answer
    assert run("search", query="tea", tags=["other"])["func_return"].startswith("Nothing")
    assert run("search", query="tea", top_k=0)["status"] == "error"
    assert run("search", query="tea", start_datetime="soon")["status"] == "error"
    assert run("insert", content=" ")["status"] == "error"
    assert idle_api.get(f"/v1/agents/{agent['id']}/context").json()["num_archival_memory"] == 1


def test_another_embedding_model_embeds_everything_anew_in_a_job(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.embedding_models = ["small", "large"]
    made = api.post("/v1/archives", {"name": "e"}).json()
    path = f"/v1/archives/{made['id']}"
    many = [{"text": f"Sailing in storm {i}."} for i in range(70)]
    assert api.post(f"{path}/passages/batch", {"passages": many}).status == 200
    for number, model in enumerate(("fake/small", "fake/large"), start=1):
        changed = api.patch(path, {"embedding": model}).json()
        assert changed["embedding_config"]["handle"] == model
        job = f"/v1/jobs/{changed['embedding_job_id']}"
        wait_for(lambda job=job: api.get(job).json()["status"] == "completed")
        assert api.get(job).json()["metadata"]["embedded"] == 70
        assert Passage.objects.filter(vector_model=model).count() == 70
        assert Job.objects.filter(kind="embed_archive", done=70, total=70).count() == number
    assert "embedding_job_id" not in api.patch(path, {"embedding": "fake/large"}).json()
    assert api.patch(path, {"embedding": "fake/none"}).status == 404
    assert api.get(path).json()["embedding"] == "fake/large"
    assert api.patch(path, {"embedding": ""}).json()["embedding"] is None


def test_passages_that_got_no_vector_get_it_from_a_job(
    idle_api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.embedding_models = ["small"]
    made = idle_api.post("/v1/archives", {"name": "e", "embedding": "fake/small"}).json()
    provider.embedding_error = Unavailable("The model is away.")
    for number in range(3):
        idle_api.post(f"/v1/archives/{made['id']}/passages", {"text": f"Fact {number}."})
    provider.embedding_error = None
    [job] = Job.objects.filter(kind="embed_archive")
    work(job.pk)
    assert Passage.objects.filter(vector_model="fake/small").count() == 3


def test_a_job_begun_anew_embeds_only_what_is_left(
    idle_api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.embedding_models = ["small"]
    made = idle_api.post("/v1/archives", {"name": "e"}).json()
    many = [{"text": f"Fact {i}."} for i in range(40)]
    idle_api.post(f"/v1/archives/{made['id']}/passages/batch", {"passages": many})
    idle_api.patch(f"/v1/archives/{made['id']}", {"embedding": "fake/small"})
    first = Passage.objects.order_by("row").first()
    assert first is not None
    Passage.objects.filter(pk=first.pk).update(vector=b"\0" * 4, vector_model="fake/small")
    provider.embedded.clear()
    [job] = Job.objects.filter(kind="embed_archive")
    work(job.pk)
    assert len(provider.embedded) == 39


def test_a_job_whose_archive_has_gone_fails_with_the_reason(
    idle_api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.embedding_models = ["small"]
    made = idle_api.post("/v1/archives", {"name": "e"}).json()
    idle_api.patch(f"/v1/archives/{made['id']}", {"embedding": "fake/small"})
    idle_api.delete(f"/v1/archives/{made['id']}")
    [job] = Job.objects.filter(kind="embed_archive")
    work(job.pk)
    job.refresh_from_db()
    assert (job.status, "deleted" in job.error) == ("failed", True)
