"""WebSockets: `/ws/conversations/<id>/` and `/ws/agents/<id>/`, the ambient frames one per text message.

The handshake always succeeds; a refusal is a last frame that says why, and a close code, since browsers
show neither the status nor the body of a failed handshake. Codes: 4000 + the HTTP status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from channels.routing import URLRouter
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest, QueryDict, parse_cookie
from django.urls import re_path
from pydantic import BaseModel

from agents.actor import Actor
from agents.models import User
from agents.selectors import agents_of
from conversations.ambient import AgentCursor, start_of, starts_of
from conversations.api.agent_feed import AgentFeed
from conversations.api.ambient import Batch, ConversationFeed, EventsQuery
from conversations.api.reading import read
from conversations.composition import server
from conversations.wire import frames
from conversations.wire.ambient import CLOSED, Bandwidth
from souveraine import ids
from souveraine.api.auth import key_actor, loopback_actor
from souveraine.api.guard import keyless_refusal, origin_refusal
from souveraine.api.validation import failed, parse_id, parse_parameters
from souveraine.errors import Forbidden, SouveraineError

logger = logging.getLogger(__name__)
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

NO_SUCH_SOCKET = 4404  # the WebSocket range for applications, after HTTP's 404
DELETED, REVOKED, TOO_SLOW = 4410, 4401, 4408
TOO_BIG, FAILED = 1009, 1011  # RFC 6455
CLOSE_CODES = {"deleted": DELETED, "revoked": REVOKED}
BAD_REQUEST, UNPROCESSABLE = 400, 422
MAX_INCOMING = 4_096  # characters or bytes; nothing that is sent here is used
SLOW_READER_SECONDS = 30.0  # for one frame to get away, with the buffers of both sides full


class SlowReader(Exception):
    """The client does not read."""


class Feed(Protocol):
    """What a socket sends."""

    closed: str | None

    def batches(self) -> Any:
        """Yield lists of JSON frames."""


def headers_of(scope: Any) -> dict[str, Any]:
    """Return the handshake's headers and peer as Django's META has them; repeated ones are joined."""
    meta: dict[str, Any] = {"REMOTE_ADDR": (scope.get("client") or [""])[0]}
    for raw_name, raw_text in scope["headers"]:
        name = "HTTP_" + raw_name.decode("latin-1").upper().replace("-", "_")
        text = raw_text.decode("latin-1")
        meta[name] = f"{meta[name]},{text}" if name in meta else text
    return meta


def _session_user(meta: dict[str, Any]) -> User | None:
    """Return who is logged in by the session cookie."""
    key = parse_cookie(meta.get("HTTP_COOKIE", "")).get(settings.SESSION_COOKIE_NAME)
    if not key:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_user(request)
    return user if isinstance(user, User) else None


def socket_actor(scope: Any) -> Actor:
    """Return who opens the socket, with scope `read`: by key, else by session, else by loopback trust.

    A browser sends cookies along with sockets that foreign pages open, hence the look at Origin first.
    Raises Forbidden or Unauthorized.
    """
    meta = headers_of(scope)
    actor = key_actor(meta)
    if actor is None:
        foreign = origin_refusal(meta)
        if foreign is not None:
            raise Forbidden(f"A key is needed: {foreign}.")
        user = _session_user(meta)
        actor = (
            Actor(user, frozenset({"read"}))
            if user
            else loopback_actor(meta, keyless_refusal(meta))
        )
    if "read" not in actor.scopes:
        raise Forbidden("This key has no scope 'read'. Use a key that has it, or make one.")
    return actor


def _is_still_allowed(scope: Any, actor: Actor) -> bool:
    try:
        return socket_actor(scope).user_id == actor.user_id
    except SouveraineError:
        return False


def conversation_feed(scope: Any) -> Feed:
    """Return what the socket of a conversation sends. Raises what the route of `/v1` answers."""
    actor = socket_actor(scope)
    query = parse_parameters(EventsQuery, QueryDict(scope["query_string"]))
    text = scope["url_route"]["kwargs"]["conversation_id"]
    conversation_id = parse_id(ids.CONVERSATION, text, "conversation_id")
    conversation = server().sessions.get_conversation(actor, conversation_id)
    return ConversationFeed(
        actor,
        conversation.pk,
        start_of(conversation, query.after),
        query.bandwidth,
        is_allowed=lambda: _is_still_allowed(scope, actor),
    )


class AgentEventsQuery(BaseModel):
    """Query of an agent's socket."""

    after: str | None = None
    bandwidth: Bandwidth = "high"


def agent_feed(scope: Any) -> Feed:
    """Return what the socket of an agent sends. Raises what the route of `/v1` answers."""
    actor = socket_actor(scope)
    query = parse_parameters(AgentEventsQuery, QueryDict(scope["query_string"]))
    agent_id = parse_id(ids.AGENT, scope["url_route"]["kwargs"]["agent_id"])
    agent = server().inventory.get_agent(actor, agent_id)
    try:
        after = AgentCursor.of(query.after) if query.after else None
    except ValueError as error:
        message = "Send the `after` of a frame of this socket, as it is"
        raise failed("value_error", ("query", "after"), message, query.after) from error

    def why_closed() -> str | None:
        if not _is_still_allowed(scope, actor):
            return "revoked"
        return None if agents_of(actor).filter(pk=agent_id).exists() else "deleted"

    since, starts = starts_of(agent, after)
    return AgentFeed(agent, since, starts, query.bandwidth, why_closed=why_closed)


class Socket:
    """One ASGI application per kind of feed."""

    def __init__(self, open_feed: Callable[[Any], Feed]) -> None:
        self._open_feed = open_feed

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one socket; whichever side ends first ends the other."""
        await receive()  # websocket.connect
        await send({"type": "websocket.accept"})
        tasks = [
            asyncio.create_task(self._send_all(scope, send), name=f"socket {scope['path']}"),
            asyncio.create_task(_ignore_incoming(receive)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            code = next((task.result() for task in tasks if task.done()), None)
            if code is not None:
                await send({"type": "websocket.close", "code": code})
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_all(self, scope: Any, send: Send) -> int:
        """Send what the feed has and return the code to close with."""
        try:
            feed = await read(self._open_feed, scope)
            async with aclosing(feed.batches()) as batches:
                async for batch in batches:
                    await _send_batch(send, batch)
            return CLOSE_CODES.get(feed.closed or "", FAILED)
        except SouveraineError as error:
            last = {"message_type": CLOSED, "reason": error.code.lower(), "detail": error.detail}
            await _send_batch(send, [frames.dump(last)])
            status = BAD_REQUEST if error.http_status == UNPROCESSABLE else error.http_status
            return 4000 + status
        except SlowReader:
            logger.info("event=socket_too_slow path=%s", scope["path"])
            return TOO_SLOW
        except Exception:  # the edge "stream pump" of style.md §6
            logger.exception("event=socket_failed path=%s", scope["path"])
            return FAILED


async def _send_batch(send: Send, batch: Batch) -> None:
    """Send frame by frame. Raises SlowReader when one does not get away in time."""
    try:
        for text in batch:
            async with asyncio.timeout(SLOW_READER_SECONDS):
                await send({"type": "websocket.send", "text": text.decode()})
    except TimeoutError:
        raise SlowReader from None


async def _ignore_incoming(receive: Receive) -> int | None:
    """Drop what the client says, as there is nothing to ask; return a close code, or None when it has left."""
    while (message := await receive())["type"] != "websocket.disconnect":
        said = message.get("text") or message.get("bytes") or ""
        if len(said) > MAX_INCOMING:
            return TOO_BIG
    return None


async def refuse_websocket(scope: Any, receive: Receive, send: Send) -> None:
    """Close a WebSocket on a path that has none."""
    await receive()
    await send({"type": "websocket.close", "code": NO_SUCH_SOCKET})


ROUTES: dict[str, Any] = {
    r"^ws/conversations/(?P<conversation_id>[^/]+)/?$": Socket(conversation_feed),
    r"^ws/agents/(?P<agent_id>[^/]+)/?$": Socket(agent_feed),
    r"": refuse_websocket,
}
websocket = URLRouter([re_path(pattern, application) for pattern, application in ROUTES.items()])
