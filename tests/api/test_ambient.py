"""`GET /v1/conversations/{id}/events`: several viewers of one conversation (rows 140, 141, 167, 187)."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from agents.models import ApiKey
from agents.services.keys import revoke_key
from conversations.ambient import REPLAYED_RUNS, RUN_END, RUN_SPAN
from conversations.models import Conversation, Run
from souveraine.events.connection import sync_client
from souveraine.events.log import meta_key, stream_key
from souveraine.testing import cast
from souveraine.testing.fake_provider import Call, Reply
from tests.api.viewers import watching
from tests.conftest import Api, wait_for

STARTED, ENDED = "souveraine_run_started", "souveraine_run_ended"
RESYNC, CLOSED = "souveraine_resync", "souveraine_closed"


@pytest.fixture
def conversation(api: Api, agent: dict[str, Any]) -> str:
    return str(api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()["id"])


@pytest.fixture
def fast_pings(settings: Any) -> None:
    config = settings.CONFIG
    values = {**config.values, "SOUVERAINE_PING_SECONDS": 0.1}
    settings.CONFIG = type(config)(**{**vars(config), "values": values})


def send(api: Api, conversation: str, text: str = "Hello", **options: Any) -> list[Any]:
    body = {"input": text, "stream_tokens": True, **options}
    answer = api.post(f"/v1/conversations/{conversation}/messages", body)
    assert answer.status == 200, answer.body
    frames: list[Any] = answer.frames()
    return frames


def forget_stream(run: Run) -> None:
    sync_client().delete(stream_key(run.pk), meta_key(run.pk))


def run_number(conversation: str, number: int) -> Run:
    return Run.objects.get(conversation_id=conversation.removeprefix("conv-"), event_number=number)


def test_two_viewers_see_the_same_turn_and_what_the_other_client_said(
    api: Api, conversation: str, provider: Any
) -> None:
    provider.enqueue(Reply(reasoning="hm", text="one two three", tool_calls=[Call("no_such_tool")]))
    with watching(api, conversation) as first, watching(api, conversation) as second:
        assert first.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert [f["message_type"] for f in first.all_frames] == ["ping"]
        sent = send(api, conversation, "What is up?")
        first.wait_until(ENDED), second.wait_until(ENDED)
        assert first.frames == second.frames
        assert not first.is_over  # it stays open while nothing runs
    frames = first.frames
    assert [f["message_type"] for f in frames[:2]] == [STARTED, "user_message"]
    assert frames[1]["content"] == "What is up?"
    own = [f for f in sent if isinstance(f, dict) and f["message_type"] != "ping"]
    extra = {"conversation_id", "cursor"}
    for mine, seen in zip(own, frames[2:-1], strict=True):
        assert {k: v for k, v in seen.items() if k not in extra and k in mine} == mine
    assert {f["run_id"] for f in frames} == {own[0]["run_id"]}
    assert {f["conversation_id"] for f in frames} == {conversation}
    cursors = [f["cursor"] for f in frames]
    assert cursors == sorted(set(cursors))
    assert (frames[-1]["message_type"], frames[-1]["stop_reason"]) == (ENDED, "end_turn")


def test_whoever_comes_in_mid_turn_sees_it_from_its_beginning(
    api: Api, conversation: str, provider: Any
) -> None:
    send(api, conversation, "before")
    gate = threading.Event()
    provider.enqueue(Reply(text="late one", before=lambda request: gate.wait(20)))
    sender = threading.Thread(target=send, args=(api, conversation, "now"))
    sender.start()
    wait_for(lambda: Run.objects.filter(event_number=2).exists())
    with watching(api, conversation) as viewer:
        viewer.wait_until("user_message")
        gate.set()
        viewer.wait_until(ENDED)
    sender.join()
    assert viewer.frames[1]["content"] == "now"
    assert viewer.text() == "late one"
    with watching(api, conversation) as later:  # and an ended one is not shown again
        send(api, conversation, "third")
        later.wait_until(ENDED)
    assert later.frames[1]["content"] == "third"


def test_reconnecting_anywhere_gives_exactly_the_missed_frames(
    api: Api, conversation: str, provider: Any
) -> None:
    provider.enqueue("one two three", Reply(text="four five"))
    with watching(api, conversation, "?after=0") as viewer:
        body = {"messages": [{"role": "user", "content": text} for text in ("a", "b")]}
        send(api, conversation, **body, input=None)
        send(api, conversation, "c")
        viewer.wait_until(ENDED, 2)
    whole = viewer.frames
    assert [f["content"] for f in whole if f["message_type"] == "user_message"] == ["a", "b", "c"]
    for place, frame in enumerate(whole):
        with watching(api, conversation, f"?after={frame['cursor']}") as again:
            rest = whole[place + 1 :]
            wait_for(lambda again=again, rest=rest: len(again.frames) >= len(rest))
            assert again.frames == rest
    header = {"Last-Event-ID": str(whole[2]["cursor"])}  # the newer of the two counts
    with watching(api, conversation, "?after=0", header) as again:
        again.wait_until(ENDED, 2)
    assert again.frames == whole[3:]


def test_a_turn_whose_stream_is_gone_is_told_out_of_its_rows(
    api: Api, conversation: str, provider: Any
) -> None:
    provider.enqueue("one two three")
    with watching(api, conversation, "?after=0") as viewer:
        send(api, conversation)
        viewer.wait_until(ENDED)
    run = run_number(conversation, 1)
    wait_for(lambda: Run.objects.get(pk=run.pk).stream_closed)
    forget_stream(run)
    with watching(api, conversation, "?after=0") as unseen:
        unseen.wait_until(ENDED)
    kinds = [STARTED, "user_message", "assistant_message", "stop_reason", "usage_statistics", ENDED]
    assert unseen.types() == kinds
    assert unseen.frames[2]["seq_id"] is None  # it has no number in a stream that could be followed
    assert unseen.text() == "one two three"
    for place, frame in enumerate(unseen.frames):  # exact from anywhere, as often as one likes
        with watching(api, conversation, f"?after={frame['cursor']}") as again:
            rest = unseen.frames[place + 1 :]
            wait_for(lambda again=again, rest=rest: len(again.frames) >= len(rest))
            assert again.frames == rest
    piece = next(f for f in viewer.frames if f["message_type"] == "assistant_message")
    with watching(api, conversation, f"?after={piece['cursor']}") as half:
        half.wait_until(ENDED)
    assert half.types() == [RESYNC, *kinds[2:]]
    assert (half.frames[0]["reason"], half.frames[0]["run_id"]) == (
        "stream_incomplete",
        f"run-{run.pk}",
    )


def test_events_lost_in_mid_turn_are_announced_and_made_good_at_the_end(
    api: Api, conversation: str, provider: Any, redis_url: str
) -> None:
    gate = threading.Event()
    provider.enqueue(
        Reply(text="one two", tool_calls=[Call("no_such_tool")]),
        Reply(text="three", before=lambda request: gate.wait(20)),
    )
    sender = threading.Thread(target=send, args=(api, conversation))
    sender.start()
    wait_for(lambda: len(provider.calls) == 2)
    run = run_number(conversation, 1)
    wait_for(lambda: sync_client().xlen(stream_key(run.pk)) >= 5)
    sync_client().xtrim(stream_key(run.pk), maxlen=1, approximate=False)
    with watching(api, conversation) as viewer:
        viewer.wait_until(RESYNC)
        gate.set()
        viewer.wait_until(ENDED)
    sender.join()
    assert viewer.types()[:3] == [STARTED, "user_message", RESYNC]
    assert viewer.frames[2]["reason"] == "events_lost"
    again = [f["reason"] for f in viewer.frames if f["message_type"] == RESYNC]
    assert again == ["events_lost", "stream_incomplete"]
    place = len(viewer.frames) - viewer.types()[::-1].index(RESYNC)
    assert [
        f["content"] for f in viewer.frames[place:] if f["message_type"] == "assistant_message"
    ] == ["one two", "three"]


def test_cursors_out_of_reach_are_told_apart(api: Api, conversation: str, provider: Any) -> None:
    row = Conversation.objects.filter(pk=conversation.removeprefix("conv-"))
    row.update(last_event_number=REPLAYED_RUNS)
    send(api, conversation)
    with watching(api, conversation, "?after=0") as old:
        old.wait_until(ENDED)
    assert (old.types()[0], old.frames[0]["reason"]) == (RESYNC, "history")
    ahead = (REPLAYED_RUNS + 2) * RUN_SPAN
    with watching(api, conversation, f"?after={ahead}") as unknown:
        unknown.wait_until(RESYNC)
    assert unknown.frames[0]["reason"] == "unknown"
    assert unknown.cursor == (REPLAYED_RUNS + 1) * RUN_SPAN + RUN_END


@pytest.mark.parametrize(
    ("bandwidth", "shown"),
    [
        ("medium", {"user_message", "assistant_message", "tool_call_message", "stop_reason"}),
        ("low", {"user_message", "assistant_message", "stop_reason"}),
        ("minimal", set()),
    ],
)
def test_bandwidth_limits_what_is_shown(
    api: Api, conversation: str, provider: Any, bandwidth: str, shown: set[str]
) -> None:
    provider.enqueue(Reply(reasoning="hm", text="yes", tool_calls=[Call("no_such_tool")]))
    with watching(api, conversation, f"?bandwidth={bandwidth}") as viewer:
        send(api, conversation)
        viewer.wait_until(ENDED)
    seen = set(viewer.types())
    assert seen >= shown | {STARTED, ENDED}
    assert not seen & {"reasoning_message", "usage_statistics"}
    if bandwidth == "minimal":
        assert seen == {STARTED, ENDED}
    assert viewer.cursor == RUN_SPAN + RUN_END


def test_a_failed_and_a_cancelled_turn_are_seen_as_such(
    api: Api, conversation: str, provider: Any
) -> None:
    started = threading.Event()
    provider.enqueue(Reply(error=ValueError("boom"), error_after=0))
    provider.enqueue(
        Reply(text="one two", error_after=1, hangs=True, before=lambda _: started.set())
    )
    with watching(api, conversation) as viewer:
        send(api, conversation)
        viewer.wait_until(ENDED)
        assert viewer.types()[-3:] == ["stop_reason", "error_message", ENDED]
        assert b"event:" not in viewer.bytes
        sender = threading.Thread(target=send, args=(api, conversation))
        sender.start()
        assert started.wait(20)
        assert api.post(f"/v1/conversations/{conversation}/cancel").status == 200
        viewer.wait_until(ENDED, 2)
        sender.join()
    assert viewer.frames[-1]["stop_reason"] == "cancelled"


def test_deleting_ends_the_stream_with_a_last_frame(
    api: Api, agent: dict[str, Any], conversation: str, provider: Any
) -> None:
    other = api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()["id"]
    with watching(api, conversation) as first, watching(api, other) as second:
        api.delete(f"/v1/conversations/{conversation}")
        wait_for(lambda: first.is_over)
        assert first.frames[-1]["message_type"] == CLOSED
        assert first.frames[-1]["reason"] == "deleted"
        assert not second.is_over
        api.delete(f"/v1/agents/{agent['id']}")
        wait_for(lambda: second.is_over)
        assert second.frames[-1]["message_type"] == CLOSED


def test_pings_tell_the_cursor_and_a_revoked_key_ends_the_stream(
    api: Api, conversation: str, fast_pings: None
) -> None:
    reader = cast.alice("read")
    with watching(api, conversation, headers=reader.headers) as viewer:
        wait_for(lambda: len(viewer.all_frames) >= 3)
        assert {f["message_type"] for f in viewer.all_frames} == {"ping"}
        assert {f["cursor"] for f in viewer.all_frames} == {RUN_END}
        revoke_key(ApiKey.objects.get(owner=reader.user))
        wait_for(lambda: viewer.is_over)
    assert viewer.frames[-1]["reason"] == "revoked"


def test_without_wake_ups_a_new_turn_is_found_at_the_next_ping(
    api: Api, conversation: str, fast_pings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conversations.services.announce.wake", lambda *topics: False)
    with watching(api, conversation) as viewer:
        send(api, conversation)
        viewer.wait_until(ENDED)
    assert viewer.types()[0] == STARTED


def test_a_message_that_waited_is_seen_when_its_turn_comes(
    api: Api, conversation: str, provider: Any
) -> None:
    gate = threading.Event()
    provider.enqueue(Reply(text="one", before=lambda request: gate.wait(20)), "two")
    first = threading.Thread(target=send, args=(api, conversation, "a"))
    second = threading.Thread(
        target=send, args=(api, conversation, "b"), kwargs={"when_busy": "queue"}
    )
    with watching(api, conversation) as viewer:
        first.start()
        viewer.wait_until("user_message")
        second.start()
        wait_for(lambda: Run.objects.filter(status="waiting").exists())
        assert viewer.types() == [STARTED, "user_message"]
        gate.set()
        viewer.wait_until(ENDED, 2)
    first.join(), second.join()
    assert [f["content"] for f in viewer.frames if f["message_type"] == "user_message"] == [
        "a",
        "b",
    ]
    assert viewer.frames[-1]["cursor"] == 2 * RUN_SPAN + RUN_END


def test_what_one_client_is_asked_and_answers_is_seen_by_the_others(
    api: Api, conversation: str, provider: Any
) -> None:
    tool = {"name": "shell", "description": "run", "parameters": {"type": "object"}}
    provider.enqueue(Reply(tool_calls=[Call("shell", {}, id="call_1")]), "done")
    returned = {"type": "tool", "tool_call_id": "call_1", "tool_return": "ok", "status": "success"}
    answer = [{"type": "approval", "approvals": [returned]}]
    with watching(api, conversation, "?bandwidth=low") as viewer:
        send(api, conversation, client_tools=[tool])
        viewer.wait_until(ENDED)
        assert viewer.frames[-1]["stop_reason"] == "requires_approval"
        send(api, conversation, input=None, messages=answer, client_tools=[tool])
        viewer.wait_until(ENDED, 2)
    kinds = viewer.types()
    assert "approval_request_message" in kinds[: kinds.index(ENDED)]
    assert kinds[kinds.index(ENDED) + 1 :][:2] == [STARTED, "approval_response_message"]
    assert viewer.text() == "done"


def test_a_turn_that_runs_during_the_upgrade_can_be_watched(idle_api: Api) -> None:
    agent = idle_api.post("/v1/agents", {"name": "a"}).json()["id"]
    made = idle_api.post(f"/v1/conversations?agent_id={agent}", {}).json()["id"]
    with watching(idle_api, made) as viewer:  # leaves with the turn still queued
        thread = threading.Thread(
            target=idle_api.post,
            args=(f"/v1/conversations/{made}/messages", {"input": "x"}),
            kwargs={"is_endless": True},
        )
        thread.start()
        viewer.wait_until("user_message")
        thread.join()
    Run.objects.update(event_number=None)
    Conversation.objects.update(last_event_number=0)
    import_module("conversations.migrations.0004_run_event_number").number_live_runs(apps, None)
    with watching(idle_api, made) as viewer:
        viewer.wait_until("user_message")
    assert viewer.cursor == RUN_SPAN + 1


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("?after=-1", {}),
        ("?after=x", {}),
        (f"?after={2**53}", {}),
        ("?bandwidth=loud", {}),
        ("", {"Last-Event-ID": "x"}),
        ("", {"Last-Event-ID": "9" * 400}),
    ],
)
def test_bad_cursors_and_bandwidths_are_422(
    idle_api: Api, query: str, headers: dict[str, str]
) -> None:
    agent = idle_api.post("/v1/agents", {"name": "a"}).json()["id"]
    path = f"/v1/conversations/default/events{query}{'&' if query else '?'}agent_id={agent}"
    assert idle_api.get(path, headers=headers).status == 422
