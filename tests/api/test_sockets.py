"""`/ws/conversations/<id>/`: the ambient frames on a WebSocket, and who may open one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.backends import ModelBackend

from agents.actor import first_user
from agents.models import ApiKey, User
from agents.services.keys import revoke_key
from conversations.api import sockets
from souveraine.events.hub import get_hub
from souveraine.events.wakeups import get_wakeups
from souveraine.testing import cast
from souveraine.testing.fake_provider import Reply
from tests.api.test_ambient import CLOSED, ENDED, STARTED, conversation, fast_pings, send
from tests.api.test_auth import FOREIGN, OWN
from tests.api.viewers import connected, watching
from tests.conftest import Api, wait_for

__all__ = ["conversation", "fast_pings"]  # fixtures
UNKNOWN = "conv-00000000-0000-4000-8000-000000000000"


def session_of(user: User, settings: Any) -> dict[str, str]:
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    backend = f"{ModelBackend.__module__}.{ModelBackend.__qualname__}"
    store.update(
        {
            SESSION_KEY: str(user.pk),
            BACKEND_SESSION_KEY: backend,
            HASH_SESSION_KEY: user.get_session_auth_hash(),
        }
    )
    store.save()
    return {"cookie": f"{settings.SESSION_COOKIE_NAME}={store.session_key}"}


def test_a_socket_carries_the_frames_of_the_stream(
    api: Api, conversation: str, provider: Any
) -> None:
    provider.enqueue("one two three")
    path = f"conversations/{conversation}/"
    with connected(api, path) as socket, watching(api, conversation) as stream:
        send(api, conversation)
        socket.wait_until(ENDED), stream.wait_until(ENDED)
        assert socket.frames == stream.frames
        assert socket.text() == "one two three"
        middle = socket.frames[3]["cursor"]
    with connected(api, f"{path}?after={middle}&bandwidth=low") as again:
        again.wait_until(ENDED)
    missed = [f for f in stream.frames if f["cursor"] > middle]
    assert again.frames == [f for f in missed if f["message_type"] != "usage_statistics"]


def test_deleting_and_revoking_close_the_socket_with_their_codes(
    api: Api, conversation: str, fast_pings: None
) -> None:
    reader = cast.alice("read")
    path = f"conversations/{conversation}"
    with connected(api, path, reader.headers) as keyed, connected(api, path) as keyless:
        revoke_key(ApiKey.objects.get(owner=reader.user))
        # The same caller without the key is trusted here, as the first user: the socket stays.
        api.delete(f"/v1/conversations/{conversation}")
        assert keyless.wait_until_over().code == sockets.DELETED
        assert keyed.wait_until_over().code == sockets.DELETED
    assert keyless.frames[-1]["message_type"] == CLOSED


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("conversations/{id}/?after=x", 4400),
        ("conversations/{id}/?after=-1", 4400),
        ("conversations/{id}/?bandwidth=loud", 4400),
        ("conversations/nonsense/", 4400),
        (f"conversations/{UNKNOWN}/", 4404),
    ],
)
def test_refusals_say_why_and_have_a_code(
    api: Api, conversation: str, path: str, code: int
) -> None:
    with connected(api, path.format(id=conversation)) as socket:
        assert socket.wait_until_over().code == code
    (last,) = socket.frames
    assert last["message_type"] == CLOSED
    assert last["detail"]


def test_paths_without_a_socket_are_refused(api: Api) -> None:
    with connected(api, "nothing/here") as socket:
        assert socket.wait_until_over().code == 4404


def test_a_stranger_and_a_key_without_scope_see_nothing(api: Api, conversation: str) -> None:
    path = f"conversations/{conversation}/"
    with connected(api, path, cast.charlie().headers) as stranger:
        assert stranger.wait_until_over().code == 4404
    with connected(api, path, cast.alice("chat").headers) as scopeless:
        assert scopeless.wait_until_over().code == 4403


def test_foreign_pages_and_proxies_need_a_key(api: Api, conversation: str, settings: Any) -> None:
    path = f"conversations/{conversation}/"
    key, session = cast.alice().headers, session_of(first_user(), settings)
    for headers in FOREIGN:
        code = 4403 if "origin" in headers else 4401
        with connected(api, path, headers) as keyless:
            assert keyless.wait_until_over().code == code, headers
        with connected(api, path, {**headers, **key}) as keyed:
            assert keyed.code is None, headers
        if "origin" in headers:  # what a logged-in browser sends along must not help a foreign page
            with connected(api, path, {**headers, **session}) as ridden:
                assert ridden.wait_until_over().code == 4403, headers
    for headers in OWN:
        with connected(api, path, headers) as own:
            assert own.code is None, headers


def test_a_login_opens_a_socket_from_anywhere_until_it_ends(
    api: Api, conversation: str, settings: Any, fast_pings: None
) -> None:
    path = f"conversations/{conversation}/"
    page = {"host": "souveraine.example", "origin": "https://souveraine.example"}
    with connected(api, path, page) as keyless:
        assert keyless.wait_until_over().code == 4401
    session = session_of(first_user(), settings)
    with connected(api, path, {**page, **session}) as logged_in:
        assert logged_in.code is None
        import_module(settings.SESSION_ENGINE).SessionStore(
            session["cookie"].partition("=")[2]
        ).delete()
        assert logged_in.wait_until_over().code == sockets.REVOKED
    bob = session_of(cast.bob().user, settings)
    with connected(api, path, {**page, **bob}) as other:
        assert other.wait_until_over().code == 4404


def test_what_a_client_says_is_ignored_unless_it_is_large(
    api: Api, conversation: str, provider: Any
) -> None:
    with connected(api, f"conversations/{conversation}/") as socket:
        for _ in range(100):
            socket.say('{"type":"ping"}')
        send(api, conversation)
        socket.wait_until(ENDED)
        assert not socket.is_over
        socket.say("x" * (sockets.MAX_INCOMING + 1))
        assert socket.wait_until_over().code == sockets.TOO_BIG


async def test_a_reader_that_does_not_read_is_closed(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "SLOW_READER_SECONDS", 0.05)
    sent: list[dict[str, Any]] = []

    class Endless:
        closed = None

        async def batches(self) -> Any:
            while True:
                yield [b"{}"]

    async def receive() -> dict[str, Any]:
        if not sent:
            return {"type": "websocket.connect"}
        return await asyncio.Future()

    async def send_stuck(message: dict[str, Any]) -> None:
        sent.append(message)
        if message["type"] == "websocket.send":
            await asyncio.sleep(20)

    await sockets.Socket(lambda scope: Endless())({"path": "/ws"}, receive, send_stuck)
    assert [m["type"] for m in sent] == ["websocket.accept", "websocket.send", "websocket.close"]
    assert sent[-1]["code"] == sockets.TOO_SLOW


def test_an_agents_socket_carries_all_its_conversations(
    api: Api, agent: dict[str, Any], conversation: str, provider: Any
) -> None:
    send(api, conversation, "before")
    path = f"agents/{agent['id']}/"
    with connected(api, path) as socket:
        send(api, conversation, "one")
        other = api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()["id"]
        with watching(api, other) as stream:
            send(api, other, "two")
            stream.wait_until(ENDED), socket.wait_until(ENDED, 2)
    said = [
        (f["conversation_id"], f["content"])
        for f in socket.frames
        if f["message_type"] == "user_message"
    ]
    assert said == [(conversation, "one"), (other, "two")]
    of_other = [{k: v for k, v in f.items() if k != "after"} for f in socket.frames]
    assert [f for f in of_other if f["conversation_id"] == other] == stream.frames
    first_end = socket.types().index(ENDED)
    missed = api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()["id"]
    send(api, missed, "three")  # a conversation that the viewer has never heard of
    send(api, conversation, "four")
    with connected(api, f"{path}?after={socket.frames[first_end]['after']}") as again:
        again.wait_until(ENDED, 3)
    assert sorted(f["content"] for f in again.frames if f["message_type"] == "user_message") == [
        "four",
        "three",
        "two",
    ]
    with connected(api, f"{path}?after={socket.all_frames[0]['after']}&bandwidth=minimal") as all_:
        all_.wait_until(ENDED, 4)
    assert set(all_.types()) == {STARTED, ENDED}
    with connected(api, f"{path}?after={all_.frames[-1]['after']}") as nothing:
        send(api, other, "five")
        nothing.wait_until(ENDED)
    assert nothing.types().count(STARTED) == 1


def test_turns_at_once_reach_an_agents_socket_each_in_order(
    api: Api, agent: dict[str, Any], provider: Any
) -> None:
    made = [
        api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()["id"] for _ in range(4)
    ]
    with connected(api, f"agents/{agent['id']}/") as socket:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda c: [send(api, c, str(n)) for n in range(3)], made))
        socket.wait_until(ENDED, 12)
    for name in made:
        mine = [f for f in socket.frames if f["conversation_id"] == name]
        cursors = [f["cursor"] for f in mine]
        assert cursors == sorted(set(cursors))
        texts = [f["content"] for f in mine if f["message_type"] == "user_message"]
        assert texts == ["0", "1", "2"]


def test_an_agents_socket_ends_with_the_agent_and_refuses_what_it_did_not_give(
    api: Api, agent: dict[str, Any]
) -> None:
    path = f"agents/{agent['id']}/"
    for after in ("x", "1", "W10", "WzEsMl0", "bnVsbA"):
        with connected(api, f"{path}?after={after}") as refused:
            assert refused.wait_until_over().code == 4400, after
    with connected(api, path, cast.charlie().headers) as stranger:
        assert stranger.wait_until_over().code == 4404
    with connected(api, path) as socket:
        api.delete(f"/v1/agents/{agent['id']}")
        assert socket.wait_until_over().code == sockets.DELETED
    assert socket.frames[-1]["reason"] == "deleted"


def test_viewers_who_have_left_leave_nothing_behind(
    api: Api, agent: dict[str, Any], conversation: str, provider: Any
) -> None:
    provider.enqueue(Reply(text="one two", error_after=1, hangs=True))
    sender = threading.Thread(target=send, args=(api, conversation))
    with (
        connected(api, f"agents/{agent['id']}/") as of_agent,
        connected(api, f"conversations/{conversation}/") as of_one,
        watching(api, conversation) as stream,
    ):
        sender.start()
        for viewer in (of_agent, of_one, stream):
            viewer.wait_until("assistant_message")

    async def left() -> tuple[int, int, set[str]]:
        tasks = {task.get_name() for task in asyncio.all_tasks()}
        ours = {name for name in tasks if name.startswith(("scout", "socket", "wake-ups"))}
        return get_hub().subscription_count, len(get_wakeups()._watchers), ours

    wait_for(lambda: api.run(left()) == (1, 0, set()))  # the sender's own
    assert api.post(f"/v1/conversations/{conversation}/cancel").status == 200
    sender.join()
