"""Tool rules: the solver by itself, and turns that hold to it, across crashes and approvals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.models import Message, Run, Step
from conversations.turn.guide import CONSTRAINT, HINT, MAX_HINTS
from conversations.turn.tool_rules import TYPES, Called, Standing, ToolRules
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent
from tests.turns.test_approvals import kinds, send, verdict

NAMES = ("a", "b", "c", "d")
name = st.sampled_from(NAMES)
names = st.lists(name, max_size=3)
common = {"tool_name": name}
rule = st.one_of(
    st.fixed_dictionaries(
        {**common, "type": st.sampled_from(["run_first", "exit_loop", "continue_loop"])}
    ),
    st.fixed_dictionaries({**common, "type": st.just("required_before_exit")}),
    st.fixed_dictionaries(
        {
            **common,
            "type": st.sampled_from(["constrain_child_tools", "parent_last_tool"]),
            "children": names,
        }
    ),
    st.fixed_dictionaries(
        {
            **common,
            "type": st.just("conditional"),
            "child_output_mapping": st.dictionaries(st.sampled_from("12"), name),
            "default_child": st.none() | name,
            "require_output_mapping": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {**common, "type": st.just("max_count_per_step"), "max_count_limit": st.integers(0, 3)}
    ),
)
call = st.builds(
    Called, name, st.sampled_from(["success", "error", "denied"]), st.sampled_from("123")
)
turn = st.lists(st.lists(call, min_size=1, max_size=3), max_size=5)


def rules(*given_rules: dict[str, Any]) -> ToolRules:
    found = ToolRules.of(given_rules)
    assert found is not None
    return found


@given(st.lists(rule, max_size=6), turn)
def test_what_is_offered_is_permitted_and_never_more_than_there_is(
    given_rules: list[Any], answers: list[Any]
) -> None:
    solver = ToolRules(given_rules)
    standing = solver.standing(answers, NAMES)
    offered = solver.offered(standing, NAMES)
    assert offered == [n for n in NAMES if n in offered]
    for each in NAMES:
        allowed = solver.permitted(standing, NAMES, [each]) == [True]
        assert allowed == (each in offered and _below_limits(given_rules, standing, each))
        assert allowed or each in offered or solver.reason(standing, NAMES, each)
    assert set(solver.owed(standing, NAMES)) <= set(NAMES)


def _below_limits(given_rules: list[Any], standing: Standing, tool: str) -> bool:
    limits = [r["max_count_limit"] for r in given_rules if "max_count_limit" in r]
    own = [
        r["max_count_limit"]
        for r in given_rules
        if r.get("max_count_limit") is not None and r["tool_name"] == tool
    ]
    return not limits or not own or standing.counts.get(tool, 0) < min(own)


@given(st.lists(rule, max_size=6), turn)
def test_forbidden_calls_leave_no_trace_and_limits_hold(
    given_rules: list[Any], answers: list[Any]
) -> None:
    solver = ToolRules(given_rules)
    standing, kept = Standing(), []
    for calls in answers:
        allowed = solver.permitted(standing, NAMES, [c.name for c in calls])
        kept.append([c for c, is_allowed in zip(calls, allowed, strict=True) if is_allowed])
        standing = solver.standing(kept, NAMES)
        assert standing == solver.standing(answers[: len(kept)], NAMES)
    for each in given_rules:
        if "max_count_limit" in each:
            assert standing.counts.get(each["tool_name"], 0) <= each["max_count_limit"]


@given(st.lists(rule, max_size=6), st.lists(call, min_size=1, max_size=3))
def test_a_turn_ends_only_by_an_exit_tool_that_worked(given_rules: list[Any], calls: Any) -> None:
    solver = ToolRules(given_rules)
    if solver.ends(Standing(), NAMES, calls):
        exits = {r["tool_name"] for r in given_rules if r["type"] == "exit_loop"}
        assert exits & {c.name for c in calls if c.outcome == "success"}
        after = solver.standing([calls], NAMES)
        required = {r["tool_name"] for r in given_rules if r["type"] == "required_before_exit"}
        assert required <= after.tried


def test_broken_and_foreign_rules_are_left_out() -> None:
    broken: list[Any] = [{"type": kind} for kind in (*TYPES, "requires_approval", "unknown")] + [
        None,
        {"type": "conditional", "tool_name": "a"},
        {"tool_name": "a"},
    ]
    assert ToolRules.of(broken) is None
    assert ToolRules.of(None) is None


def test_conditional_compares_text_numbers_and_truth() -> None:
    mapping = {"1": "b", "true": "c", "x y": "d"}
    solver = rules({"type": "conditional", "tool_name": "a", "child_output_mapping": mapping})
    for output, offered in (
        ("1.0", ["b"]),
        ("True", ["c"]),
        ('"x y"', ["d"]),
        (" x y ", ["d"]),
        ("else", list(NAMES)),
    ):
        standing = solver.standing([[Called("a", "success", output)]], NAMES)
        assert solver.offered(standing, NAMES) == offered, output


def test_a_failed_or_denied_call_can_be_mended_and_does_not_bind() -> None:
    solver = rules(
        {"type": "constrain_child_tools", "tool_name": "a", "children": ["b"]},
        {"type": "exit_loop", "tool_name": "c"},
        {"type": "required_before_exit", "tool_name": "d"},
    )
    failed = solver.standing([[Called("a", "error")]], NAMES)
    assert solver.offered(failed, NAMES) == ["a", "b", "d"], "the exit waits for d"
    assert solver.offered(solver.standing([[Called("a")]], NAMES), NAMES) == ["b"]
    denied = solver.standing([[Called("d", "denied")]], NAMES)
    assert solver.owed(denied, NAMES) == [], "a person's no is not asked again"
    assert not solver.ends(denied, NAMES, [Called("c", "error")])
    assert solver.ends(denied, NAMES, [Called("c")])


def insert(text: str, call_id: str | None = None) -> Call:
    return Call("memory_insert", {"label": "human", "new_string": text}, id=call_id)


def search(query: str = "jam") -> Call:
    return Call("conversation_search", {"query": query})


def tools_of(request: Any) -> list[str]:
    return [tool["name"] for tool in request.tools]


def stop_of(answer: Any) -> str:
    assert answer.status == 200, answer.body
    return str(answer.json()["stop_reason"]["stop_reason"])


def test_run_first_offers_only_that_tool_and_sets_its_arguments(api: Api, provider: Any) -> None:
    first = {"type": "run_first", "tool_name": "memory_insert", "args": {"new_string": "Set"}}
    agent = make_agent(api, tool_rules=[first])
    provider.enqueue(Reply(tool_calls=[search()]), Reply(tool_calls=[insert("Free")]), "done")
    body = send(api, agent, "hi").json()
    refused = body["messages"][1]
    assert refused["status"] == "error"
    valid = CONSTRAINT.format(name="conversation_search", valid=["memory_insert"])
    assert refused["tool_return"].startswith(valid)
    assert [tools_of(r) for r in provider.requests] == [
        ["memory_insert"],
        ["memory_insert"],
        ["conversation_search", "memory_insert", "memory_replace"],
    ]
    assert '"Set"' in body["messages"][2]["tool_call"]["arguments"]
    human = api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"]
    assert human == "Name: Bob\nSet"
    provider.enqueue("without a call", Reply(tool_calls=[insert("x")]), "done")
    body = send(api, agent, "again").json()
    assert kinds(body["messages"])[0] == "assistant_message"
    assert "memory_insert" in provider.requests[-2].messages[-1].content, "a hint"


def test_exit_loop_ends_the_turn_but_not_when_the_tool_failed(api: Api, provider: Any) -> None:
    agent = make_agent(api, tool_rules=[{"type": "exit_loop", "tool_name": "memory_insert"}])
    provider.enqueue(
        Reply(tool_calls=[Call("memory_insert", {"label": "nope", "new_string": "x"})]),
        Reply(tool_calls=[insert("x")]),
    )
    answer = send(api, agent, "hi")
    assert stop_of(answer) == "tool_rule"
    assert [m["status"] for m in answer.json()["messages"] if "tool_return" in m] == [
        "error",
        "success",
    ]
    run = Run.objects.get()
    assert (run.status, run.stop_reason) == ("completed", "tool_rule")
    provider.enqueue("next turn works")
    assert stop_of(send(api, agent, "more")) == "end_turn"


def test_required_before_exit_goes_on_with_a_hint_until_it_is_heeded(
    api: Api, provider: Any
) -> None:
    required = {"type": "required_before_exit", "tool_name": "memory_insert"}
    not_there = {"type": "required_before_exit", "tool_name": "no_such_tool"}
    agent = make_agent(api, tool_rules=[required, not_there])
    provider.enqueue("early", Reply(tool_calls=[insert("x")]), "done")
    body = send(api, agent, "hi").json()
    assert [
        m.get("content") for m in body["messages"] if m["message_type"] == "assistant_message"
    ] == [
        "early",
        "done",
    ]
    hint = provider.requests[1].messages[-1]
    assert hint.content == HINT.format(names="memory_insert")
    before = len(provider.requests)
    provider.enqueue(*["never"] * (MAX_HINTS + 1))
    assert stop_of(send(api, agent, "again")) == "end_turn"
    assert len(provider.requests) - before == MAX_HINTS + 1
    provider.enqueue("at the limit")
    assert stop_of(send(api, agent, "one step", max_steps=1)) == "end_turn"
    assert provider.pending == 0


def test_rules_survive_an_approval_and_count_across_its_runs(api: Api, provider: Any) -> None:
    agent = make_agent(
        api,
        tool_rules=[
            {"type": "requires_approval", "tool_name": "memory_insert"},
            {"type": "max_count_per_step", "tool_name": "memory_insert", "max_count_limit": 2},
            {"type": "exit_loop", "tool_name": "memory_replace"},
            {
                "type": "parent_last_tool",
                "tool_name": "memory_insert",
                "children": ["memory_replace"],
            },
        ],
    )
    for number in (1, 2):
        provider.enqueue(Reply(tool_calls=[insert(f"n{number}", f"c{number}")]))
        message = "go" if number == 1 else verdict("c1", True)
        assert stop_of(send(api, agent, message)) == "requires_approval"
    third = insert("n3", "c3")
    change = Call(
        "memory_replace", {"label": "human", "old_string": "n2", "new_string": "N2"}, id="c4"
    )
    provider.enqueue(Reply(tool_calls=[third]), Reply(tool_calls=[change]))
    answer = send(api, agent, verdict("c2", True))
    assert stop_of(answer) == "tool_rule", "the third insert waits for nobody: it is forbidden"
    returns = [m for m in answer.json()["messages"] if "tool_return" in m]
    assert "may be called 2 times" in returns[1]["tool_return"]
    assert "memory_insert" not in tools_of(provider.requests[-1])
    assert "memory_replace" not in tools_of(provider.requests[0])
    provider.enqueue(Reply(tool_calls=[insert("n4", "c5")]))
    assert stop_of(send(api, agent, "a new turn counts anew")) == "requires_approval"


def test_a_crash_behind_the_exit_call_ends_the_turn_the_same_way(
    idle_api: Api, new_worker: Any, provider: Any
) -> None:
    agent = make_agent(idle_api, tool_rules=[{"type": "exit_loop", "tool_name": "memory_insert"}])
    sent = idle_api.post(f"/v1/agents/{agent['id']}/messages/async", {"input": "hi"}).json()
    run = Run.objects.get(pk=sent["id"].removeprefix("run-"))
    step = Step.objects.create(run=run, agent_id=run.agent_id, index=0, status="success")
    conversation = run.conversation
    made = {"conversation": conversation, "agent_id": run.agent_id, "run": run, "step_id": step.pk}
    said = {"id": "c1", "name": "memory_insert", "arguments": "{}"}
    answer = Message.objects.create(
        **made, sequence=conversation.last_sequence + 1, role="assistant", tool_calls=[said]
    )
    Message.objects.create(
        **made,
        sequence=conversation.last_sequence + 2,
        role="tool",
        text="ok",
        status="success",
        tool_call_id="c1",
        name="memory_insert",
    )
    from conversations.models import ToolCall

    ToolCall.objects.create(
        conversation=conversation,
        message_id=answer.id,
        position=0,
        run=run,
        name="memory_insert",
        state="returned",
    )
    conversation.last_sequence += 2
    conversation.save()
    new_worker().execute(run.pk)
    run.refresh_from_db()
    assert (run.status, run.stop_reason) == ("completed", "tool_rule")
    assert provider.requests == []


BAD_RULES = [
    {"type": "unknown", "tool_name": "a"},
    {"tool_name": "a"},
    {"type": "run_first"},
    {"type": "constrain_child_tools", "tool_name": "a"},
    {"type": "parent_last_tool", "tool_name": "a", "children": "b"},
    {"type": "conditional", "tool_name": "a"},
    {"type": "max_count_per_step", "tool_name": "a"},
    {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": -1},
    {
        "type": "constrain_child_tools",
        "tool_name": "a",
        "children": ["b"],
        "child_arg_nodes": [{"name": "c"}],
    },
]


@pytest.mark.parametrize("bad", BAD_RULES)
def test_unknown_types_and_missing_fields_are_422(idle_api: Api, bad: dict[str, Any]) -> None:
    answer = idle_api.post("/v1/agents", {"name": "x", "tool_rules": [bad]})
    assert answer.status == 422, answer.body
    assert "tool_rules" in answer.json()["detail"]


def test_rules_are_kept_as_given(idle_api: Api) -> None:
    given_rules = [
        {"type": "conditional", "tool_name": "a", "child_output_mapping": {"1": "b"}},
        {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": 2},
    ]
    agent = make_agent(idle_api)
    changed = idle_api.patch(f"/v1/agents/{agent['id']}", {"tool_rules": given_rules}).json()
    assert changed["tool_rules"] == given_rules
