"""Making room in the prompt: by estimate, after refusals, once per turn, with and without a model's help."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from agents.providers.base import ChatRequest, FinishDelta, TextDelta
from conversations.models import Conversation, Message, Run, Step
from souveraine.errors import ProviderError
from souveraine.testing.fake_provider import Call, Reply
from tests.conftest import Api, make_agent

SUMMARISER = "You write the memory of a conversation"
OVERFLOW = "context_window_overflow"


def size(request: ChatRequest) -> int:
    """What the double takes for tokens: 4 characters of messages and tools."""
    calls = sum(len(c.arguments) + len(c.name) for m in request.messages for c in m.tool_calls)
    text = sum(len(str(m.content)) for m in request.messages)
    return (text + calls + len(json.dumps(request.tools))) // 4


def is_summariser(request: ChatRequest) -> bool:
    return str(request.messages[0].content).startswith(SUMMARISER)


class Model:
    """A model with a window of `tokens` that refuses above; `scale` is how wrong our estimate is."""

    def __init__(self, tokens: int = 2000, scale: float = 1.0, told: bool = False) -> None:
        self.tokens, self.scale, self.told = tokens, scale, told
        self.refused = self.answered = self.summarised = 0
        self.replies: list[Reply] = []

    def __call__(self, request: ChatRequest) -> Reply:
        taken = int(size(request) * self.scale)
        if taken > self.tokens:
            self.refused += 1
            text = "context_length_exceeded"
            if self.told:
                text = (
                    f"maximum context length is {self.tokens} tokens, you requested {taken} tokens"
                )
            return Reply(error=ProviderError(OVERFLOW, text))
        if is_summariser(request):
            self.summarised += 1
            return Reply(text="They spoke of gardens. The gate code is 4711.", prompt_tokens=taken)
        self.answered += 1
        if self.replies:
            reply = self.replies.pop(0)
            return Reply(**{**reply.__dict__, "prompt_tokens": taken})
        return Reply(text=f"answer {self.answered}", prompt_tokens=taken)


@pytest.fixture
def small(provider: Any) -> Any:
    """The scripted provider with a window of 2,000 tokens, and the model behind it."""
    provider.context_window = 2000
    return provider


def behave(provider: Any, model: Model) -> Model:
    provider.default = model  # a callable is asked for each reply
    return model


def agent_with(api: Api, **fields: Any) -> dict[str, Any]:
    return make_agent(api, system="You are brief.", include_base_tools=False, **fields)


def fill(agent: dict[str, Any], turns: int, chars: int = 400) -> Conversation:
    """Put answered turns into the agent's default conversation, as if they had been said."""
    conversation = Conversation.objects.get(
        agent_id=uuid.UUID(agent["id"].removeprefix("agent-")), is_default=True
    )
    rows = []
    for number in range(turns):
        for role in ("user", "assistant"):
            conversation.last_sequence += 1
            text = f"{role} {number} " + "word " * (chars // 5)
            rows.append(
                Message(
                    conversation=conversation,
                    agent_id=conversation.agent_id,
                    sequence=conversation.last_sequence,
                    role=role,
                    text=text,
                )
            )
    Message.objects.bulk_create(rows)
    conversation.save(update_fields=["last_sequence"])
    return conversation


def say(api: Api, agent: dict[str, Any], text: str = "hello", **options: Any) -> Any:
    return api.post(f"/v1/agents/{agent['id']}/messages", {"input": text, **options})


def assert_answered(answer: Any) -> None:
    assert answer.status == 200, answer.body
    assert answer.json()["stop_reason"]["stop_reason"] == "end_turn"


def summaries(conversation: Conversation) -> list[Message]:
    return list(Message.objects.filter(conversation=conversation, role="summary").order_by("row"))


def test_a_full_window_gives_way_to_a_summary(api: Api, small: Any) -> None:
    model = behave(small, Model())
    agent = agent_with(api)
    conversation = fill(agent, turns=10)
    assert_answered(say(api, agent, "What was the gate code?"))
    assert (model.refused, model.summarised, model.answered) == (0, 1, 1)
    [asked, request] = small.requests
    assert asked.tools == []
    assert "user 0 word" in str(asked.messages[-1].content)
    texts = [str(m.content) for m in request.messages]
    assert request.messages[1].role == "user"
    assert "4711" in texts[1], "the window begins with the summary"
    assert texts[-1] == "What was the gate code?"
    assert request.messages[2].role == "user", "what stays begins with a user's message"
    kept = sum(len(t) for t in texts[2:-1]) // 4
    assert 0 < kept <= 0.3 * 2000
    [summary] = summaries(conversation)
    conversation.refresh_from_db()
    assert conversation.window_start == summary.compaction["window_start"] > 1
    assert Message.objects.filter(conversation=conversation).count() == 20 + 1 + 3, "raw rows stay"
    listed = api.get(f"/v1/agents/{agent['id']}/messages?limit=1000").json()
    [frame] = [m for m in listed if m["message_type"] == "summary_message"]
    assert frame["compaction_stats"]["trigger"] == "post_step_context_check"
    assert frame["compaction_stats"]["messages_count_before"] == 1 + 20 + 1
    state = api.get(f"/v1/agents/{agent['id']}").json()
    assert state["message_ids"][1] == f"message-{summary.id}"
    assert len(state["message_ids"]) == frame["compaction_stats"]["messages_count_after"] + 1
    run = Run.objects.get(conversation=conversation)
    steps = list(Step.objects.filter(run=run).order_by("index"))
    assert [s.tags for s in steps] == [["compaction"], []]
    assert run.usage["step_count"] == 1
    assert run.usage["prompt_tokens"] == sum(s.prompt_tokens for s in steps)
    assert run.usage["context_tokens"] == steps[1].prompt_tokens + steps[1].completion_tokens


@pytest.mark.parametrize("told", [True, False])
def test_b13_three_sends_in_a_row_to_a_model_that_counts_more_than_we_do(
    api: Api, small: Any, told: bool
) -> None:
    """letta #3288, circuit breaker for the context overflow death spiral."""
    model = behave(small, Model(scale=3.0, told=told))
    agent = agent_with(api)
    conversation = fill(agent, turns=12)
    before = Message.objects.filter(conversation=conversation, role="user").count()
    for number in range(3):
        assert_answered(say(api, agent, f"message {number}"))
    assert model.answered == 3
    assert model.refused <= 2, "the estimate is corrected from the refusal"
    assert Message.objects.filter(conversation=conversation, role="user").count() == before + 3
    conversation.refresh_from_db()
    assert conversation.calibration["ratio"] > 2
    for run in Run.objects.filter(conversation=conversation):
        steps = Step.objects.filter(run=run)
        assert len([s for s in steps if s.tags]) <= 1, "one summary per turn"


def test_a_smaller_window_than_believed_is_learnt_from_the_refusal(api: Api, provider: Any) -> None:
    model = behave(provider, Model(tokens=1500, told=True))
    agent = agent_with(api)
    conversation = fill(agent, turns=20)
    for _ in range(3):
        assert_answered(say(api, agent))
    assert model.refused <= 2
    conversation.refresh_from_db()
    assert 1500 <= conversation.calibration["limit"] < 1800


def test_refused_again_after_the_summary_the_oldest_turns_are_dropped_then_it_is_an_error(
    api: Api, small: Any
) -> None:
    agent = agent_with(api)
    conversation = fill(agent, turns=12)
    refusal = Reply(error=ProviderError(OVERFLOW, "too large"))
    small.enqueue(refusal, "A summary.", refusal, "At last.")
    fill(agent, turns=0)
    Conversation.objects.filter(pk=conversation.pk).update(window_start=20)
    answer = say(api, agent)
    assert_answered(answer)
    assert small.pending == 0
    assert [is_summariser(r) for r in small.requests] == [False, True, False, False]
    sizes = [size(r) for r in small.requests]
    assert sizes[0] > sizes[2] > sizes[3]
    Conversation.objects.filter(pk=conversation.pk).update(window_start=20, calibration=None)
    small.enqueue(refusal, "A summary.", refusal, refusal)
    failed = say(api, agent)
    assert (failed.status, failed.json()["error"]["type"]) == (400, OVERFLOW)
    small.enqueue("Works.")
    assert_answered(say(api, agent, "next"))


def test_a_system_prompt_that_does_not_fit_is_told_as_such(api: Api, small: Any) -> None:
    behave(small, Model())
    agent = agent_with(api)
    long = "rules " * 2500
    api.patch(f"/v1/agents/{agent['id']}", {"system": long})
    answer = api.post(f"/v1/agents/{agent['id']}/messages/stream", {"input": "hello"})
    assert answer.frames()[-3] == {
        "message_type": "stop_reason",
        "stop_reason": "context_window_overflow_in_system_prompt",
    }
    error = answer.frames()[-2]
    assert error["error_type"] == "context_window_overflow_in_system_prompt"
    assert "Shorten the system prompt" in error["detail"]
    api.patch(f"/v1/agents/{agent['id']}", {"system": "Short."})
    assert_answered(say(api, agent))


def test_a_message_that_does_not_fit_is_refused_and_the_next_one_works(
    api: Api, small: Any
) -> None:
    model = behave(small, Model())
    agent = agent_with(api)
    answer = say(api, agent, "huge " * 4000)
    assert (answer.status, answer.json()["error"]["type"]) == (400, OVERFLOW)
    assert "smaller pieces" in answer.json()["error"]["detail"]
    assert_answered(say(api, agent, "small"))
    assert model.answered == 1


@pytest.mark.parametrize("failure", ["error", "empty", "hangs", "long"])
def test_without_a_usable_summary_excerpts_stand_in(
    api: Api, small: Any, settings: Any, failure: str
) -> None:
    config = settings.CONFIG
    changed = {**config.values, "SOUVERAINE_COMPACTION_TIMEOUT_SECONDS": 0.2}
    settings.CONFIG = type(config)(**{**vars(config), "values": changed})
    agent = agent_with(api)
    conversation = fill(agent, turns=30)
    small.enqueue(
        {
            "error": Reply(error=ProviderError("llm_rate_limit", "slow down", is_transient=True)),
            "empty": Reply(text="", reasoning="hm"),
            "hangs": Reply(text="They", hangs=True),
            "long": Reply(deltas=[TextDelta("prose without end. " * 2000), FinishDelta("stop")]),
        }[failure],
        "Fine.",
    )
    assert_answered(say(api, agent))
    assert len(small.requests) == 2
    [summary] = summaries(conversation)
    assert len(summary.text) <= 0.15 * 2000 * 4.5
    run = Run.objects.get(conversation=conversation)
    [made, _] = Step.objects.filter(run=run).order_by("index")
    if failure == "long":
        assert summary.text.startswith("prose without end.")
        assert made.status == "success"
        return
    assert "user 27 word" in summary.text, "the newest of what left is there"
    assert made.status == "failed"
    assert "No model could summarise" in run.request["notices"][0]


def test_many_compactions_do_not_make_summary_or_prompt_grow(api: Api, small: Any) -> None:
    model = behave(small, Model())
    agent = agent_with(api)
    conversation = fill(agent, turns=1)
    lengths = []
    for number in range(12):
        fill(agent, turns=8)
        assert_answered(say(api, agent, f"message {number}"))
        lengths.append(size(small.requests[-1]))
    assert model.summarised >= 6
    assert max(lengths) <= 2000
    small.default = Reply(error=ProviderError("llm_error", "down"))
    for _ in range(4):
        fill(agent, turns=10)
        say(api, agent)
    texts = [len(s.text) for s in summaries(conversation)]
    assert max(texts) <= 0.15 * 2000 * 4.5
    assert len(texts) >= 10


def test_a_turn_of_many_tool_calls_stays_within_the_window(api: Api, small: Any) -> None:
    model = behave(small, Model())
    agent = agent_with(api, tools=["conversation_search"])
    call = Call("conversation_search", {"query": "nothing of the kind"})
    model.replies = [Reply(text="searching " * 60, tool_calls=[call, call]) for _ in range(12)]
    answer = say(api, agent, "Find the blue vase.")
    assert_answered(answer)
    assert model.summarised == 1, "one summary per turn, then excerpts"
    for request in small.requests:
        assert size(request) <= 2000
        if is_summariser(request):
            continue
        assert "Find the blue vase." in str([m.content for m in request.messages])
        called = [c.id for m in request.messages for c in m.tool_calls]
        returned = [m.tool_call_id for m in request.messages if m.role == "tool"]
        assert called == returned, "no call is parted from its return"
        assert "No result was recorded" not in str(request.messages)


def test_a_tool_return_larger_than_the_window_is_shortened_in_the_prompt_only(
    api: Api, small: Any, data_dir: Any
) -> None:
    behave(small, Model())
    agent = agent_with(api, tools=["read_file"])
    folder = data_dir / "agents" / agent["id"].removeprefix("agent-") / "memory.git"
    (folder / "long.md").write_text("line of text\n" * 3000)
    model = small.default
    model.replies = [
        Reply(tool_calls=[Call("read_file", {"path": "long.md"})]),
        Reply(text="Read."),
    ]
    assert_answered(say(api, agent, "Read it."))
    stored = Message.objects.get(role="tool")
    assert len(stored.text) > 20_000
    sent = next(m for m in small.requests[-1].messages if m.role == "tool")
    assert "characters left out" in str(sent.content)
    assert size(small.requests[-1]) <= 2000


@pytest.mark.parametrize("stream_tokens", [True, False])
def test_compaction_frames_come_when_they_are_asked_for(
    api: Api, small: Any, stream_tokens: bool
) -> None:
    behave(small, Model())
    agent = agent_with(api)
    conversation = fill(agent, turns=30)
    path = f"/v1/agents/{agent['id']}/messages/stream"
    body = {"input": "hi", "stream_tokens": stream_tokens, "include_compaction_messages": True}
    frames = [f for f in api.post(path, body).frames()[:-1] if f["message_type"] != "ping"]
    event, summary = frames[:2]
    assert (event["message_type"], summary["message_type"]) == ("event_message", "summary_message")
    assert event["event_type"] == "compaction"
    assert set(event["event_data"]) == {"trigger", "context_token_estimate", "context_window"}
    assert str(uuid.UUID(event["id"])) == event["id"]
    stats = summary["compaction_stats"]
    assert stats["context_tokens_after"] < stats["context_tokens_before"]
    assert stats["context_window"] == 2000
    fill(agent, turns=30)
    del body["include_compaction_messages"]
    kinds = {f["message_type"] for f in api.post(path, body).frames()[:-1]}
    assert len(summaries(conversation)) == 2
    assert not kinds & {"event_message", "summary_message"}
    fill(agent, turns=30)
    messages = say(api, agent, include_compaction_messages=True).json()["messages"]
    assert [m["message_type"] for m in messages][:2] == ["event_message", "summary_message"]
