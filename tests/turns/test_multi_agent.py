"""Agents of one owner send each other messages; no chain of messages is endless."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.providers.base import ChatRequest
from conversations.models import Message, Run
from souveraine.testing.cast import charlie
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent, wait_for

ASK, TELL, ALL = (
    "send_message_to_agent_and_wait_for_reply",
    "send_message_to_agent_async",
    "send_message_to_agents_matching_tags",
)


class Cast:
    """A model that plays several agents: what each says is asked of its function."""

    def __init__(self, api: Api, provider: Any) -> None:
        self.api, self.parts = api, dict[str, Any]()
        provider.default = self.play

    def add(self, name: str, part: Any, **fields: Any) -> str:
        made = make_agent(self.api, name=name, include_multi_agent_tools=True, **fields)
        self.parts[made["id"]] = part
        return str(made["id"])

    def play(self, request: ChatRequest) -> Reply:
        system = str(request.messages[0].content)
        part = next(p for pk, p in self.parts.items() if f"AGENT_ID: {pk}" in system)
        last = request.messages[-1]
        found: Reply | str = part(last.role, str(last.content)) if callable(part) else part
        return found if isinstance(found, Reply) else Reply(text=found)


@pytest.fixture
def cast(api: Api, provider: Any) -> Cast:
    return Cast(api, provider)


def calling(tool: str, **arguments: Any) -> Any:
    """A part that calls the tool, and then says what it returned."""

    def part(role: str, text: str) -> Reply | str:
        return f"Got: {text}" if role == "tool" else Reply(tool_calls=[Call(tool, arguments)])

    return part


def ask(api: Api, agent_id: str, text: str = "Go") -> str:
    answer = api.post(f"/v1/agents/{agent_id}/messages", {"input": text})
    assert answer.status == 200, answer.body
    return str(answer.json()["messages"][-1]["content"])


def returned(text: str) -> Any:
    return json.loads(text.removeprefix("Got: "))


def test_an_agent_asks_another_and_gets_its_answer(api: Api, cast: Cast) -> None:
    def helper(role: str, text: str) -> str:
        return "Twelve." if "How many?" in text else "?"

    other = cast.add("Helper", helper)
    first = cast.add("Asker", calling(ASK, message="How many?", other_agent_id=other))
    assert returned(ask(api, first)) == {"agent_id": other, "response": ["Twelve."]}
    told = api.get(f"/v1/agents/{other}/messages").json()
    assert [m["message_type"] for m in told][1:] == ["user_message", "assistant_message"]
    assert f"Asker ({first})" in told[1]["content"]
    assert told[1]["sender_id"] == first


def test_an_agent_tells_another_and_goes_on(api: Api, cast: Cast) -> None:
    other = cast.add("Other", "Noted.")
    first = cast.add("Teller", calling(TELL, message="News", other_agent_id=other))
    assert "was sent to Other" in ask(api, first)
    wait_for(lambda: Message.objects.filter(text="Noted.").exists())


def test_agents_found_by_tags_answer_each(api: Api, cast: Cast) -> None:
    one = cast.add("One", "1", tags=["team", "red"])
    two = cast.add("Two", "2", tags=["team", "blue"])
    cast.add("Three", "3", tags=["red"])
    first = cast.add(
        "Asker",
        calling(ALL, message="?", match_all=["team"], match_some=["red", "blue"]),
        tags=["team", "red"],
    )
    answers = {a["agent_id"]: a["response"] for a in returned(ask(api, first))}
    assert answers == {one: ["1"], two: ["2"]}


def test_two_agents_that_wait_for_each_other_are_told_so(api: Api, cast: Cast) -> None:
    ids: dict[str, str] = {}

    def second(role: str, text: str) -> Any:
        return calling(ASK, message="And you?", other_agent_id=ids["first"])(role, text)

    ids["second"] = cast.add("Second", second)
    ids["first"] = cast.add("First", calling(ASK, message="You?", other_agent_id=ids["second"]))
    answer = ask(api, ids["first"])
    assert "waits for you already" in answer


def test_a_chain_of_messages_ends(api: Api, cast: Cast) -> None:
    ids: list[str] = []

    def pong(me: int) -> Any:
        def part(role: str, text: str) -> Any:
            return calling(TELL, message="pong", other_agent_id=ids[1 - me])(role, text)

        return part

    ids += [cast.add("A", pong(0)), cast.add("B", pong(1))]
    ask(api, ids[0])
    wait_for(lambda: Message.objects.filter(text__contains="are not allowed").exists())
    wait_for(lambda: not Run.objects.exclude(status__in=["completed"]).exists())
    assert Run.objects.count() == 6


def test_what_cannot_be_sent_is_said_to_the_model(api: Api, cast: Cast) -> None:
    first = cast.add("First", "x")
    path = f"/v1/agents/{first}/tools"

    def run(tool: str, **args: Any) -> str:
        answer = api.post(f"{path}/{tool}/run", {"args": {"message": "hi", **args}}).json()
        assert answer["status"] == "error"
        return str(answer["func_return"])

    stranger = charlie()
    theirs = api.post(
        "/v1/agents", {"model": "fake/fake-model", "tags": ["t"]}, headers=stranger.headers
    ).json()["id"]
    assert "no agent" in run(TELL, other_agent_id=theirs)
    assert "no agent" in run(ASK, other_agent_id="nonsense")
    assert "your own id" in run(ASK, other_agent_id=first)
    assert "No agent" in run(ALL, match_all=["t"])
    assert "Name tags" in run(ALL)
    other = cast.add("Other", "x")
    assert "empty" in run(TELL, message=" ", other_agent_id=other)


def test_an_answer_that_does_not_come_is_an_error_and_a_cancel_ends_the_waiting(
    api: Api, cast: Cast, settings: Any, monkeypatch: Any
) -> None:
    monkeypatch.setitem(settings.CONFIG.values, "SOUVERAINE_TOOL_TIMEOUT_SECONDS", 3.0)
    slow = cast.add("Slow", lambda role, text: Reply(text="late", hangs=True))
    first = cast.add("First", calling(ASK, message="?", other_agent_id=slow))
    assert "has not answered within 3 seconds" in returned(ask(api, first))["error"]
    api.post(f"/v1/agents/{slow}/messages/cancel", {})
    wait_for(lambda: not Run.objects.filter(status="running").exists())
    monkeypatch.setitem(settings.CONFIG.values, "SOUVERAINE_TOOL_TIMEOUT_SECONDS", 60.0)
    sent = api.post(f"/v1/agents/{first}/messages/async", {"input": "Go"})
    assert sent.status == 200
    of_slow = Run.objects.filter(agent_id=slow.removeprefix("agent-"), status="running")
    wait_for(of_slow.exists)
    api.post(f"/v1/agents/{first}/messages/cancel", {})
    wait_for(lambda: not Run.objects.filter(status__in=["running", "queued"]).exists())


def test_an_agent_whose_model_fails_gives_an_error(api: Api, cast: Cast) -> None:
    broken = cast.add("Broken", lambda role, text: Reply(error=ValueError("boom")))
    first = cast.add("First", calling(ASK, message="?", other_agent_id=broken))
    assert "ended with error" in returned(ask(api, first))["error"]
