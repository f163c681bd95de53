"""Search in messages over the API: words, questions, who and when, and whose."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import Agent
from agents.providers import embeddings
from conversations.embedded import embedded_texts
from conversations.models import Conversation, Message, MessageVector
from conversations.search import MessageQuery, Place, search_messages
from souveraine.errors import Unavailable
from souveraine.testing import cast
from tests.conftest import Api, make_agent

MORNING = datetime(2026, 3, 5, 9, 0, tzinfo=UTC)
MODEL = "fake/small"


@pytest.fixture
def agent(idle_api: Api) -> dict[str, Any]:
    return make_agent(idle_api)


def talk(agent: dict[str, Any], *said: str, at: datetime = MORNING, **fields: Any) -> Conversation:
    """Store a conversation; user and assistant take turns."""
    owner = Agent.objects.get(pk=agent["id"].removeprefix("agent-"))
    conversation = Conversation.objects.create(agent=owner, **fields)
    for number, text in enumerate(said):
        Message.objects.create(
            conversation=conversation,
            agent=owner,
            sequence=number + 2,
            role="user" if number % 2 == 0 else "assistant",
            text=text,
            created_at=at + timedelta(minutes=number),
        )
    return conversation


def texts(api: Api, query: str | None, path: str = "messages/search", **body: Any) -> list[str]:
    answer = api.post(f"/v1/{path}", {"query": query, **body})
    assert answer.status == 200, answer.body
    return [
        r["content"] if "content" in r else r["message"]["content"][0]["text"]
        for r in answer.json()
    ]


def test_it_works(idle_api: Api, agent: dict[str, Any]) -> None:
    talk(agent, "My sister Ada plays the cello.", "Lovely!", "It rains.")
    [found] = idle_api.post("/v1/messages/search", {"query": "who plays a cello?"}).json()
    assert found["message_type"] == "user_message"
    assert found["content"] == "My sister Ada plays the cello."
    assert found["agent_id"] == agent["id"]
    assert found["conversation_id"].startswith("conv-")
    assert found["message_id"].startswith("message-")
    assert found["created_at"] == "2026-03-05T09:00:00.000000Z"
    assert (found["snippet"], found["position"], found["sequence"]) == (found["content"], 14, 2)


def test_the_old_form_has_ranks_and_the_stored_message(
    idle_api: Api, agent: dict[str, Any]
) -> None:
    talk(agent, "My sister Ada plays the cello.", "Lovely!")
    [found] = idle_api.post("/v1/agents/messages/search", {"query": "cello"}).json()
    assert found["embedded_text"] == "My sister Ada plays the cello."
    assert (found["fts_rank"], found["vector_rank"]) == (1, None)
    assert found["rrf_score"] > 0
    assert found["message"]["role"] == "user"
    assert found["message"]["created_by_id"].startswith("user-")
    newest = texts(idle_api, None, "agents/messages/search")
    assert newest[:2] == ["Lovely!", "My sister Ada plays the cello."]


def test_the_place_of_the_search_is_chosen(idle_api: Api, agent: dict[str, Any]) -> None:
    first = talk(agent, "The red fox.")
    other = make_agent(idle_api, name="other")
    talk(other, "Another red fox.")
    talk(agent, "A deleted red fox.", deleted_at=MORNING)
    assert sorted(texts(idle_api, "fox")) == ["Another red fox.", "The red fox."]
    assert texts(idle_api, "fox", agent_id=other["id"]) == ["Another red fox."]
    assert texts(idle_api, "fox", conversation_id=f"conv-{first.pk}") == ["The red fox."]
    charlie = cast.charlie()
    assert (
        idle_api.post("/v1/messages/search", {"query": "fox"}, headers=charlie.headers).json() == []
    )
    for body in ({"agent_id": agent["id"]}, {"conversation_id": f"conv-{first.pk}"}):
        asked = idle_api.post(
            "/v1/messages/search", {"query": "fox", **body}, headers=charlie.headers
        )
        assert asked.status == 404


def test_a_fork_is_searched_with_what_it_inherited(idle_api: Api, agent: dict[str, Any]) -> None:
    source = talk(agent, "The red fox.", "Which one?", "A later fox.")
    part = {"conversation": str(source.pk), "first": 2, "last": 3}
    fork = Conversation.objects.create(agent=source.agent, inherited=[part])
    Message.objects.create(
        conversation=fork, agent=source.agent, sequence=4, role="user", text="The fork's own fox."
    )
    found = texts(idle_api, "fox", conversation_id=f"conv-{fork.pk}")
    assert sorted(found) == ["The fork's own fox.", "The red fox."]


def test_roles_and_dates_narrow_it(idle_api: Api, agent: dict[str, Any]) -> None:
    talk(agent, "Tea in March.", "Tea it is.")
    talk(agent, "Tea in May.", at=MORNING + timedelta(days=60))
    path = "agents/messages/search"
    assert texts(idle_api, "tea", path, roles=["assistant"]) == ["Tea it is."]
    assert texts(idle_api, "tea", path, roles=["tool"]) == []
    assert texts(idle_api, "tea", start_date="2026-04-01") == ["Tea in May."]
    found = texts(idle_api, "tea", end_date="2026-04-01T00:00:00Z")
    assert sorted(found) == ["Tea in March.", "Tea it is."]
    assert len(texts(idle_api, "tea", limit=1)) == 1


def test_the_answer_to_a_question_is_found_by_the_words_of_the_question(
    idle_api: Api, agent: dict[str, Any]
) -> None:
    owner_says = ["Hello.", "What did you give Nora for her birthday?", "A telescope.", "Nice."]
    talk(agent, *owner_says)
    assert texts(idle_api, "birthday gift of Nora")[:2] == [owner_says[1], owner_says[2]]


def test_who_is_meant_and_when_count(idle_api: Api, agent: dict[str, Any]) -> None:
    talk(agent, "Against moths I would take cedar.", "Against moths I would take cold.")
    assert texts(idle_api, "What did you suggest against moths?")[0].endswith("cold.")
    assert texts(idle_api, "What did I suggest against moths?")[0].endswith("cedar.")
    for day in range(20):
        talk(agent, f"Lunch was dish {day}.", at=MORNING + timedelta(days=day))
    assert texts(idle_api, "What was for lunch on 9 March 2026?")[0] == "Lunch was dish 4."
    assert texts(idle_api, "What did we eat on 2026-03-12?")[0] == "Lunch was dish 7."


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "AND",
        "NOT x",
        "text:x",
        "a* b^2",
        "(",
        "'; --",
        "%",
        "\\",
        "NEAR(a b)",
        "🦊",
        "x" * 5000,
    ],
)
def test_a_query_is_never_syntax(idle_api: Api, agent: dict[str, Any], query: str) -> None:
    talk(agent, "Nothing like it.")
    for path in ("messages/search", "agents/messages/search"):
        assert idle_api.post(f"/v1/{path}", {"query": query}).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": 5},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": 10**30},
        {"query": "x", "search_mode": "magic"},
        {"query": "x", "start_date": "soon"},
        {"query": "x", "agent_id": "nobody"},
        {"query": "x", "conversation_id": "conv-1"},
        {"query": "x" * 10_001},
    ],
)
def test_a_bad_search_is_refused(idle_api: Api, agent: dict[str, Any], body: Any) -> None:
    assert idle_api.post("/v1/messages/search", body).status == 422


def test_search_by_meaning_needs_a_model_and_says_so(idle_api: Api, agent: dict[str, Any]) -> None:
    talk(agent, "Sailing.")
    answer = idle_api.post("/v1/messages/search", {"query": "x", "search_mode": "vector"})
    assert answer.status == 400
    assert "SOUVERAINE_EMBEDDING_MODEL" in answer.json()["detail"]


def embed_all(provider: Any) -> None:

    found = embedded_texts(Message.objects.filter(role__in=["user", "assistant"]))
    agents = dict(Message.objects.values_list("row", "agent"))
    vectors = embeddings.embed(MODEL, list(found.values()))
    MessageVector.objects.bulk_create(
        MessageVector(message_id=row, agent_id=agents[row], model=MODEL, vector=vector)
        for row, vector in zip(found, vectors, strict=True)
    )


def test_with_a_model_meaning_counts_and_its_failure_costs_only_that(
    idle_api: Api, agent: dict[str, Any], provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.CONFIG.values, "SOUVERAINE_EMBEDDING_MODEL", MODEL)
    provider.embedding_models = ["small"]
    talk(agent, "Sailing in storms.", "Cooking for guests.", "Storms are loud.")
    embed_all(provider)
    assert texts(idle_api, "sailors")[0] == "Sailing in storms."
    answer = idle_api.post(
        "/v1/agents/messages/search", {"query": "sailors", "search_mode": "vector"}
    )
    assert (answer.json()[0]["fts_rank"], answer.json()[0]["vector_rank"]) == (None, 1)
    assert texts(idle_api, "sailors", search_mode="fts") == []

    provider.embedding_error = Unavailable("The model is away.")
    assert len(texts(idle_api, "storms")) == 2
    answer = idle_api.post("/v1/messages/search", {"query": "storms", "search_mode": "vector"})
    assert answer.status == 503


def test_an_answer_is_embedded_with_its_question(agent: dict[str, Any]) -> None:
    talk(agent, "Hello.", "What did you give Nora?", "A telescope.", "Nice.")
    found = embedded_texts(Message.objects.exclude(role="system").order_by("row"))
    assert list(found.values()) == [
        "Hello.",
        "What did you give Nora?",
        "What did you give Nora?\nA telescope.",
        "Nice.",
    ]


def test_a_search_asks_the_same_number_of_times_however_much_there_is(
    idle_api: Api, agent: dict[str, Any]
) -> None:
    conversation = talk(agent, "Lunch was soup.", "Was it good?", "Very.")
    place = Place(conversation.agent.owner_id, conversation.agent_id)

    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            found = search_messages(place, MessageQuery("What was for lunch on 5 March 2026?"))
            assert [f.message.agent.name for f in found]
        return len(queries)

    few = asked()
    for day in range(30):
        talk(
            agent,
            *[f"Lunch was dish {day}.", "Good?", "Yes."] * 5,
            at=MORNING + timedelta(days=day),
        )
    assert asked() == few
    assert few <= 10


def test_the_tool_understands_who_asks(idle_api: Api, agent: dict[str, Any]) -> None:
    talk(agent, "Against moths I would take cedar.", "Against moths I would take cold.")
    path = f"/v1/agents/{agent['id']}/tools/conversation_search/run"
    returned = idle_api.post(path, {"args": {"query": "What did I say against moths?"}}).json()
    lines = returned["func_return"].splitlines()
    assert lines[0] == "[2026-03-05 09:01 UTC] assistant: Against moths I would take cold."
    assert len(lines) == 2
    long = "word " * 400 + "needle at the end"
    talk(agent, long)
    returned = idle_api.post(path, {"args": {"query": "needle"}}).json()["func_return"]
    assert "(match: …" in returned
    assert "needle at the end)" in returned


def test_conversations_are_found_by_their_summary(idle_api: Api, agent: dict[str, Any]) -> None:
    for summary in ("The 50% offer", "The 500 offers", None):
        talk(agent, "Hello.", summary=summary)
    path = f"/v1/conversations?agent_id={agent['id']}&summary_search"
    assert [c["summary"] for c in idle_api.get(f"{path}=50%25+OFFER").json()] == ["The 50% offer"]
    assert len(idle_api.get(f"{path}=offer").json()) == 2
    assert idle_api.get(f"{path}=_").json() == []
