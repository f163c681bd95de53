"""Following runs again: exactly what was missed, or a clear answer why not."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import pytest

from conversations.models import Run
from conversations.wire.frames import base_frame, dump
from souveraine.events import log
from souveraine.events.hub import get_hub
from souveraine.testing import cast
from souveraine.testing.fake_provider import Reply
from tests.conftest import Answer, Api, make_agent, wait_for
from tests.turns.test_durability import accept, claim

ENDING = ["stop_reason", "usage_statistics", "[DONE]"]


@pytest.fixture
def ended(api: Api, agent: dict[str, Any], provider: Any) -> tuple[str, list[Any]]:
    """An ended run in token mode, and the frames that its sender got: seq 1 to 4 and the ending."""
    provider.enqueue("one two three")
    path = f"/v1/agents/{agent['id']}/messages/stream"
    sent = api.post(path, {"input": "go", "stream_tokens": True}).frames()
    assert [f["seq_id"] for f in sent[:-3]] == [1, 2, 3, 4]
    # The sender has its last frame before the row says so.
    wait_for(lambda: Run.objects.get().stream_closed)
    return sent[1]["run_id"], sent


def follow(api: Api, run_id: str, after: int = 0, **options: Any) -> Answer:
    return api.post(f"/v1/runs/{run_id}/stream", {"starting_after": after}, **options)


def lose(run_id: str) -> None:
    bare = uuid.UUID(run_id.removeprefix("run-"))
    log.sync_client().delete(log.stream_key(bare), log.meta_key(bare))


def trim(run_id: uuid.UUID, first: int) -> None:
    """Drop the oldest events, as the cap does."""
    log.sync_client().xtrim(log.stream_key(run_id), minid=f"{first}-0", approximate=False)


async def subscriptions() -> int:
    return get_hub().subscription_count


def test_each_cursor_gets_exactly_what_is_behind_it(api: Api, ended: Any) -> None:
    run_id, sent = ended
    for after in range(7):
        assert follow(api, run_id, after).frames() == sent[after:], after
    assert follow(api, run_id, 7).frames() == ["[DONE]"], "nothing is behind the last event"


def test_last_event_id_counts_like_starting_after(api: Api, ended: Any) -> None:
    run_id, sent = ended
    for header, after in (("3", 0), ("3", 2), ("0", 3)):
        found = follow(api, run_id, after, headers={"Last-Event-ID": header})
        assert found.frames() == sent[3:]
    for header in ("x", "-1", "1.5", "9" * 30):
        refused = follow(api, run_id, headers={"Last-Event-ID": header})
        assert refused.status == 400
        assert "Last-Event-ID must be the seq_id" in refused.json()["detail"]


def test_a_cursor_beyond_the_newest_event_is_refused(api: Api, ended: Any) -> None:
    run_id, _ = ended
    newest = Run.objects.get().last_event_seq
    for _ in range(2):
        refused = follow(api, run_id, newest + 1)
        assert (refused.status, refused.json()["newest_seq_id"]) == (400, newest)
        assert refused.headers["x-should-retry"] == "false"
        lose(run_id)
    assert follow(api, run_id, 2**60).status == 422


def test_a_cursor_into_a_stream_that_is_gone_is_told_to_begin_again(api: Api, ended: Any) -> None:
    run_id, sent = ended
    lose(run_id)
    expired = follow(api, run_id, 2)
    assert (expired.status, expired.json()["code"]) == (410, "EXPIRED")
    assert "starting_after 0" in expired.json()["detail"]
    assert expired.headers["x-should-retry"] == "false"
    assert follow(api, run_id, 4).frames() == sent[4:], "all text was seen: only the ending is left"
    whole = follow(api, run_id).frames()
    assert [f.get("content") for f in whole[:-1]] == ["one two three", None, None]
    assert whole[0]["seq_id"] is None, "not a number of the lost stream"
    assert whole[1:] == sent[4:]


def test_a_trimmed_stream_of_an_ended_run(api: Api, ended: Any) -> None:
    run_id, sent = ended
    trim(Run.objects.get().pk, 4)
    expired = follow(api, run_id, 2)
    assert (expired.status, expired.json()["oldest_seq_id"]) == (410, 4)
    assert follow(api, run_id, 3).frames() == sent[3:]
    assert follow(api, run_id).frames()[0]["content"] == "one two three"


def test_a_trimmed_stream_of_a_live_run_is_told_whole_at_its_end(
    idle_api: Api, new_worker: Any
) -> None:
    agent = make_agent(idle_api)
    run = accept(idle_api, agent)
    old = {**base_frame("ping", message_id="ping-x", date=run.created_at), "x": 1}
    log.append(run.pk, 0, [("ping", dump(old))] * 3)
    trim(run.pk, 3)
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(follow(idle_api, f"run-{run.pk}")))
    thread.start()
    new_worker().execute(run.pk)
    thread.join(20)
    assert found[0].types() == ["assistant_message", *ENDING]
    assert found[0].frames()[0]["content"] == "Hello there."


def test_several_readers_follow_a_live_run_from_different_places(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    provider.enqueue(Reply(text="a b c d e f", delay_seconds=0.05))
    run = accept(api, agent)
    wait_for(lambda: log.last_seq(run.pk) >= 3)
    found: dict[int, Answer] = {}

    def reader(after: int) -> None:
        found[after] = follow(api, f"run-{run.pk}", after)

    threads = [threading.Thread(target=reader, args=(after,)) for after in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    whole = found[0].frames()
    assert [f["seq_id"] for f in whole[:-3]] == [1, 2, 3, 4, 5, 6, 7]
    for after in range(4):
        assert found[after].frames() == whole[after:]


def test_a_live_run_whose_stream_was_lost_is_followed_on(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    go_on = threading.Event()

    def late(request: Any) -> Reply:
        go_on.wait(20)
        return Reply(text="one two")

    provider.enqueue(late)
    run = accept(api, agent)
    lose(f"run-{run.pk}")
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(follow(api, f"run-{run.pk}", 1)))
    thread.start()
    go_on.set()
    thread.join(20)
    frames = found[0].frames()
    assert [f["content"] for f in frames[:-3]] == ["one", " two"]


def test_what_a_conversation_follows(api: Api, agent: dict[str, Any], ended: Any) -> None:
    run_id, sent = ended
    other = api.post(f"/v1/conversations/?agent_id={agent['id']}", {}).json()["id"]
    default = f"/v1/conversations/default/stream?agent_id={agent['id']}"
    assert api.post(default, {"run_id": run_id, "otid": "unknown"}).frames() == sent
    foreign = api.post(f"/v1/conversations/{other}/stream", {"run_id": run_id})
    assert foreign.status == 404
    assert api.post(default, {"otid": "unknown"}).status == 404
    none = api.post(default, {})
    assert (none.status, none.json()["detail"]) == (
        400,
        "INVALID_ARGUMENT: No active runs found for this conversation.",
    )
    stranger = cast.charlie().headers
    assert api.post(default, {"run_id": run_id}, headers=stranger).status == 404
    assert follow(api, run_id, headers=stranger).status == 404


def test_the_same_otid_again_is_the_same_run_in_every_mode(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(request: Any) -> Reply:
        reached.set()
        go_on.wait(20)
        return Reply(text="once")

    provider.enqueue(hold)
    path = f"/v1/agents/{agent['id']}/messages"
    found: list[Answer] = []

    def send(text: str, streaming: bool) -> None:
        message = {"role": "user", "content": text, "otid": "x1"}
        found.append(api.post(path, {"messages": [message], "streaming": streaming}))

    threads = [
        threading.Thread(target=send, args=args)
        for args in (("one", True), ("one", False), ("other text", True), ("one", False))
    ]
    for thread in threads:
        thread.start()
    assert reached.wait(20)
    wait_for(lambda: api.run(subscriptions()) == 4)
    go_on.set()
    for thread in threads:
        thread.join(20)
    send("after the end", False)
    send("after the end", True)
    assert [a.status for a in found] == [200] * 6
    shown = [a.frames() if a.types() else a.json()["messages"] for a in found]
    said = {json.dumps([f["content"] for f in frames if "content" in f]) for frames in shown}
    assert said == {'["once"]'}
    assert (Run.objects.count(), len(provider.requests)) == (1, 1)
    listed = api.get(path).json()
    assert [m["content"] for m in listed if m["message_type"] == "user_message"] in (
        ["one"],
        ["other text"],
    )


def test_a_failed_json_answer_is_not_repeated_by_the_sdks(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    from souveraine.errors import ProviderError

    provider.enqueue(Reply(error=ProviderError("llm_rate_limit", "slow down")))
    failed = api.post(f"/v1/agents/{agent['id']}/messages", {"input": "x"})
    assert (failed.status, failed.headers["x-should-retry"]) == (429, "false")


def test_following_waits_for_the_run_of_a_dead_worker(idle_api: Api, new_worker: Any) -> None:
    """A follower sees through what died in between: it is the run that is followed, not its worker."""
    from datetime import timedelta

    from django.utils import timezone

    from conversations.turn import sweeper

    agent = make_agent(idle_api)
    run = claim(accept(idle_api, agent))
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(follow(idle_api, f"run-{run.pk}")))
    thread.start()
    Run.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert sweeper.sweep() == [run.pk]
    new_worker().execute(run.pk)
    thread.join(20)
    frames = found[0].frames()
    assert [f["seq_id"] for f in frames[:-3]] == list(range(1, len(frames) - 2))
    assert "".join(f["content"] for f in frames if f != "[DONE]" and "content" in f) == (
        "Hello there."
    )
