"""Messages get their vectors in the background: each once, in order, whatever the model refuses."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents.models import Agent
from conversations.models import Conversation, Message, MessageVector
from conversations.services.embedding import keep_vectors, texts_to_embed
from conversations.turn.embedder import MessageEmbedder, embed_batch
from souveraine.errors import ProviderError, Unavailable
from tests.conftest import Api, make_agent

SMALL, LARGE = "fake/small", "fake/large"
OLD = timedelta(minutes=5)


@pytest.fixture
def conversation(idle_api: Api) -> Conversation:
    agent = make_agent(idle_api)
    return Conversation.objects.create(agent=Agent.objects.get(pk=agent["id"][6:]))


def say(conversation: Conversation, number: int, text: str, **fields: Any) -> Message:
    values: dict[str, Any] = {"role": "user", "created_at": timezone.now() - OLD, **fields}
    return Message.objects.create(
        conversation=conversation,
        agent=conversation.agent,
        sequence=number + 2,
        text=text,
        **values,
    )


def test_all_that_was_said_is_embedded_once(conversation: Conversation, provider: Any) -> None:
    rows = [say(conversation, n, f"Text {n}").row for n in range(40)]
    say(conversation, 40, "result", role="tool")
    say(conversation, 41, "")
    say(conversation, 42, "just now", created_at=timezone.now())
    assert [asyncio.run(embed_batch(SMALL)) for _ in range(3)] == [True, True, False]
    assert sorted(MessageVector.objects.values_list("pk", flat=True)) == rows
    assert len(provider.embedded) == 40


def test_another_model_replaces_the_vectors(conversation: Conversation, provider: Any) -> None:
    say(conversation, 0, "Text")
    for model in (SMALL, LARGE):
        assert asyncio.run(embed_batch(model))
    assert [v.model for v in MessageVector.objects.all()] == [LARGE]


def test_a_text_that_the_model_refuses_keeps_back_no_other(
    conversation: Conversation, provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in enumerate(("good", "poison", "fine")):
        say(conversation, number, text)
    plain = provider.embed

    def picky(model: str, texts: Any, **options: Any) -> Any:
        if "poison" in texts:
            raise ProviderError("llm_bad_request", "I do not like that.")
        return plain(model, texts, **options)

    monkeypatch.setattr(provider, "embed", picky)
    assert asyncio.run(embed_batch(SMALL))
    assert MessageVector.objects.count() == 2
    assert texts_to_embed(SMALL, 10) == {}


def test_a_model_that_is_away_is_asked_later(conversation: Conversation, provider: Any) -> None:
    say(conversation, 0, "Text")
    provider.embedding_error = Unavailable("The model is away.")
    embedder = MessageEmbedder()
    assert asyncio.run(embedder._step(SMALL)) >= 30
    provider.embedding_error = None
    assert asyncio.run(embedder._step(SMALL)) < 1
    assert MessageVector.objects.count() == 1


def test_a_message_that_went_meanwhile_is_left_out(conversation: Conversation) -> None:
    kept = say(conversation, 0, "Text")
    keep_vectors(SMALL, {kept.row: b"\0" * 8, kept.row + 999: b"\0" * 8})
    assert MessageVector.objects.count() == 1
