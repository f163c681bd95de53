"""`POST /v1/chat/completions`: an agent as the model of an OpenAI client.

The agent has its own memory, history and prompt: of what the client sends only what the person said since the
agent's last answer counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Agent
from agents.selectors import agents_of
from conversations.api.base import ApiView
from conversations.api.bodies import Body, JSONObject, SendMessage, ShortText
from conversations.api.incoming import turn_options
from conversations.api.messages import accept
from conversations.api.streams import JsonAnswer, SseStream
from conversations.composition import server
from conversations.wire.completions import Completion
from conversations.wire.frames import dump
from souveraine import ids
from souveraine.api.exceptions import handle
from souveraine.api.handoff import hand_over
from souveraine.api.validation import failed, parse_body
from souveraine.errors import Expired, InvalidArgument, NotFound
from souveraine.events import sse
from souveraine.events.log import Event

SHOWN = 5  # agents of one name, in an error
ANSWERS = ("assistant", "tool", "function")


class StreamOptions(Body):
    """OpenAI's `stream_options`."""

    include_usage: bool = False


class ChatCompletionRequest(Body):
    """What counts of OpenAI's request; the model's parameters are the agent's business and are ignored."""

    model: ShortText
    messages: Annotated[list[JSONObject], Field(min_length=1, max_length=10_000)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None


@dataclass
class CompletionStream(SseStream):
    """A run as chunks of a chat completion."""

    completion: Completion | None = None

    def _encode(self, event: Event, *, is_stored: bool = False) -> bytes:
        assert self.completion is not None
        if event.kind == "ping":
            return sse.COMMENT_PING
        if event.kind == "end":
            return _lines(self.completion.last_chunks()) + sse.DONE
        frame = json.loads(event.data)
        if event.kind == "error":
            return _lines([{"error": _error(frame)}])
        return _lines([self.completion.chunk(delta) for delta in self.completion.deltas(frame)])

    def _keep_alive(self, last_seq: int) -> bytes:
        return sse.COMMENT_PING


def _lines(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(sse.data_frame(dump(chunk)) for chunk in chunks)


def _error(frame: dict[str, Any]) -> dict[str, Any]:
    return {
        "message": frame.get("detail") or frame.get("message"),
        "type": frame.get("error_type"),
        "param": None,
        "code": frame.get("error_type"),
    }


@dataclass
class CompletionAnswer(JsonAnswer):
    """A run as one chat completion; errors as for every send."""

    completion: Completion | None = None

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Return status and body for the ended run."""
        assert self.completion is not None
        status, body = super().answer()
        return (status, self.completion.whole(body)) if status == 200 else (status, body)


def in_openai_form(exc: Exception, context: dict[str, Any]) -> Response:
    """Render an exception as everywhere, with the `error` object beside it that OpenAI's clients read."""
    response = handle(exc, context)
    if "error" not in response.data:
        kind = "invalid_request_error" if response.status_code < 500 else "server_error"
        message, code = str(response.data.get("detail", "")), response.data.get("code")
        error = {"message": message, "type": kind, "param": None, "code": code}
        response.data = {"error": error, **response.data}
    return response


class ChatCompletionsView(ApiView):
    """The OpenAI-compatible front."""

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        """Give the one that OpenAI's clients understand."""
        return in_openai_form

    @extend_schema(operation_id="chat_completions_create", request=ChatCompletionRequest)
    def post(self, request: Request) -> HttpResponse:
        """Send to the agent that `model` names, by id or name; behind what runs there."""
        body = parse_body(ChatCompletionRequest, request)
        agent = self._agent(body.model)
        conversation = server().sessions.default_conversation(self.actor, agent)
        send = SendMessage(
            messages=new_messages(body.messages),
            # Behind a call that waits for a person it would wait in silence, up to a day.
            when_busy="reject" if conversation.pending_message_id else "queue",
        )
        send.stream_tokens = bool(body.stream)
        options = turn_options(send, run_type="chat_completion", is_streaming=bool(body.stream))
        run = accept(self, conversation, send, options).run
        options_ = body.stream_options or StreamOptions()
        completion = Completion(f"chatcmpl-{run.pk}", body.model, options_.include_usage)
        if body.stream:
            return hand_over(request, CompletionStream(run.pk, completion=completion))
        return hand_over(request, CompletionAnswer(run.pk, completion=completion))

    def _agent(self, model: str) -> Agent:
        try:
            return server().inventory.get_agent(self.actor, ids.parse(ids.AGENT, model))
        except ids.MalformedId:
            found = list(agents_of(self.actor).filter(name=model)[: SHOWN + 1])
        if not found:
            raise NotFound(
                f"There is no agent {model!r}. `model` is the id or the name of an agent (see /v1/agents)."
            )
        if len(found) > 1:
            listed = ", ".join(f"agent-{agent.pk}" for agent in found[:SHOWN])
            raise InvalidArgument(
                f"Several agents are named {model!r}: use an id, such as {listed}."
            )
        return found[0]


def new_messages(messages: list[JSONObject]) -> list[JSONObject]:
    """Return what the person said since the last answer, in our form. Raises ValidationFailed."""
    found: list[JSONObject] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        if role in ANSWERS:
            found = []
        elif role == "user":
            content = _content(message.get("content"), index)
            found.append({"role": "user", "content": content})
        elif role not in ("system", "developer"):
            raise failed(
                "literal_error", ("body", "messages", index, "role"), "This is no role", role
            )
    if not found:
        raise failed(
            "value_error", ("body", "messages"), "The last message must be one of the role user"
        )
    return found


def _content(content: Any, index: int) -> str | list[JSONObject]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise failed("string_type", ("body", "messages", index, "content"), "This is no content")
    return [_part(part, index, number) for number, part in enumerate(content)]


def _part(part: Any, index: int, number: int) -> JSONObject:
    loc = ("body", "messages", index, "content", number)
    if not isinstance(part, dict):
        raise failed("dict_type", loc, "A part of the content is an object", part)
    if part.get("type") != "image_url":
        return part
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else None
    if not isinstance(url, str):
        raise failed("missing", (*loc, "image_url", "url"), "Field required")
    return {"type": "image", "source": {"type": "url", "url": url}}


class VoiceCompletionsView(ApiView):
    """The old server's route of voice agents."""

    @extend_schema(operation_id="voice_chat_completions_create", request=None)
    def post(self, request: Request, agent_id: str) -> HttpResponse:
        """Say that it is gone."""
        self.agent(agent_id)
        raise Expired("There are no voice agents any more. Use POST /v1/chat/completions instead.")
