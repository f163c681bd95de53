"""The server's parts in one place, each behind a protocol, so that a stub can stand in without patching."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agents import provider_selectors
from agents import selectors as agent_selectors
from agents.actor import Actor
from agents.models import Agent
from agents.providers.base import ModelInfo
from agents.services import agents as agent_services
from agents.services import creation
from conversations import selectors
from conversations.models import Conversation
from conversations.services import accept, deletion, sessions
from souveraine.lib.replaceable import Replaceable


class Inventory(Protocol):
    """The agents."""

    @property
    def list_agents(self) -> Callable[..., list[Agent]]: ...
    def get_agent(self, actor: Actor, agent_id: uuid.UUID) -> Agent: ...
    def create_agent(self, actor: Actor, data: dict[str, Any]) -> Agent: ...
    def update_agent(self, actor: Actor, agent: Agent, data: dict[str, Any]) -> Agent: ...
    def delete_agent(self, actor: Actor, agent: Agent) -> None: ...


class Sessions(Protocol):
    """The conversations."""

    def create_conversation(
        self, actor: Actor, agent: Agent, data: dict[str, Any] | None = None
    ) -> Conversation: ...
    def get_conversation(self, actor: Actor, conversation_id: uuid.UUID) -> Conversation: ...
    def default_conversation(self, actor: Actor, agent: Agent) -> Conversation: ...
    def accept_turn(
        self,
        actor: Actor,
        conversation: Conversation,
        messages: Sequence[accept.Incoming],
        options: accept.TurnOptions,
    ) -> accept.Accepted: ...


class Models(Protocol):
    """The models that are there."""

    def list_models(self, actor: Actor) -> list[ModelInfo]: ...
    def get_model(self, actor: Actor, handle: str) -> ModelInfo: ...


class _Inventory:
    list_agents = staticmethod(agent_selectors.list_agents)
    get_agent = staticmethod(agent_selectors.get_agent)
    create_agent = staticmethod(creation.create_agent)
    update_agent = staticmethod(agent_services.update_agent)
    delete_agent = staticmethod(deletion.delete_agent)


class _Sessions:
    create_conversation = staticmethod(sessions.create_conversation)
    get_conversation = staticmethod(selectors.get_conversation)
    default_conversation = staticmethod(sessions.default_conversation)
    accept_turn = staticmethod(accept.accept_turn)


class _Models:
    list_models = staticmethod(provider_selectors.list_models)
    get_model = staticmethod(provider_selectors.get_model)


@dataclass(frozen=True)
class Server:
    """What the views use. The memory's seam is `agents.services.memory.open_repository`."""

    inventory: Inventory
    sessions: Sessions
    models: Models


server: Replaceable[Server] = Replaceable(lambda: Server(_Inventory(), _Sessions(), _Models()))


@contextmanager
def override(**parts: Any) -> Iterator[Server]:
    """Replace parts by stubs: `override(inventory=stub)`."""
    with server.override(replace(server(), **parts)) as current:
        yield current
