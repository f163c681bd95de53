"""What all `/v1` views share: the actor, and how ids of the path become rows."""

from __future__ import annotations

import uuid

from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.views import APIView

from agents.actor import Actor
from agents.models import Agent
from conversations.composition import server
from conversations.models import Conversation
from souveraine import ids
from souveraine.api.validation import failed, parse_id
from souveraine.errors import NotFound

DEFAULT = "default"


class AgentIdQuery(BaseModel):
    """The agent whose default conversation is meant, or that a conversation is for."""

    agent_id: str | None = None


class ApiView(APIView):
    """A view of `/v1`; its actor has the scope that the method needs."""

    @property
    def actor(self) -> Actor:
        actor = self.request.auth
        assert isinstance(actor, Actor)
        return actor

    def agent(self, text: str) -> Agent:
        """Return the agent of a path id. Raises ValidationFailed or NotFound."""
        return server().inventory.get_agent(self.actor, parse_id(ids.AGENT, text))

    def conversation(self, text: str, agent_id: str | None = None) -> Conversation:
        """Return the conversation of a path id: `conv-…`, `default` (+ agent_id) or, deprecated, `agent-…`.

        Raises ValidationFailed or NotFound.
        """
        sessions = server().sessions
        if text.startswith("agent-"):
            return sessions.default_conversation(self.actor, self.agent(text))
        if text != DEFAULT:
            return sessions.get_conversation(
                self.actor, parse_id(ids.CONVERSATION, text, "conversation_id")
            )
        if not agent_id:
            raise NotFound("Conversation not found with id='default': name the agent in agent_id.")
        agent = server().inventory.get_agent(
            self.actor, parse_id(ids.AGENT, agent_id, source="body")
        )
        return sessions.default_conversation(self.actor, agent)


def cursor(prefix: str, text: str | None, name: str) -> uuid.UUID | None:
    """Read a cursor of the query. Raises ValidationFailed."""
    return None if text is None else parse_id(prefix, text, name, source="query")


def message_cursor(text: str | None, name: str) -> str | None:
    """Check a message cursor of the query. Raises ValidationFailed."""
    if text is not None:
        parse_id(ids.MESSAGE, text, name, source="query")
    return text


def required_agent_id(request: Request, body_agent_id: str | None) -> uuid.UUID:
    """Return agent_id from the query, else the body (K6). Raises ValidationFailed as the old server does."""
    text = request.query_params.get("agent_id") or body_agent_id
    if not text:
        raise failed("missing", ("query", "agent_id"), "Field required")
    return parse_id(ids.AGENT, text, source="query")
