"""What a second hostile tester found between approvals, queue, cancel and compaction; each test is one finding."""

from __future__ import annotations

from typing import Any

import pytest

from souveraine.testing.fake_provider import Call
from tests.conftest import Api
from tests.turns.test_approvals import SHELL, ask, returned, send


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_what_is_said_beside_a_decision_in_any_role_hides_no_return(
    api: Api, agent: dict[str, Any], provider: Any, role: str
) -> None:
    ask(api, agent, provider, Call("local_shell", {}, id="call_1"), client_tools=[SHELL])
    provider.enqueue("seen")
    answer = send(api, agent, [returned("call_1", "the file"), {"role": role, "content": "aside"}])
    assert [m["message_type"] for m in answer.json()["messages"]] == [
        "tool_return_message",
        "assistant_message",
    ]
    said = [(m.role, m.content) for m in provider.requests[-1].messages[-3:]]
    assert said == [("assistant", ""), ("tool", "the file"), (role, "aside")]


def test_a_turn_whose_last_message_is_in_the_assistants_name_is_answered(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue("real")
    answer = send(api, agent, [{"role": r, "content": r} for r in ("user", "assistant")])
    assert [m["content"] for m in answer.json()["messages"]] == ["real"]
