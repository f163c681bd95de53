"""A message scheduled with the unmodified Python SDK is sent by the worker at its time."""

from __future__ import annotations

import time

import pytest
from letta_client import Letta, NotFoundError

from tests.e2e.conftest import Serve


def test_a_scheduled_message_is_sent(server: Serve) -> None:
    client = Letta(base_url=server.url, api_key="local-dev-key")
    agent = client.agents.create(name="Ani", model="openai/double")
    cron = client.agents.schedule.create(
        agent.id,
        messages=[{"role": "user", "content": "Every night"}],
        schedule={"type": "recurring", "cron_expression": "0 3 * * *"},
    )
    once = client.agents.schedule.create(
        agent.id,
        messages=[{"role": "user", "content": "Now please"}],
        schedule={"type": "one-time", "scheduled_at": (time.time() + 1) * 1000},
    )
    shown = client.agents.schedule.retrieve(cron.id, agent_id=agent.id)
    assert shown.next_scheduled_time == cron.next_scheduled_at
    listed = client.agents.schedule.list(agent.id, limit="10")
    assert [s.id for s in listed.scheduled_messages] == [cron.id, once.id]
    assert not listed.has_next_page

    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        texts = [
            m.content
            for m in client.agents.messages.list(agent.id)
            if m.message_type == "user_message"
        ]
        if texts:
            break
        time.sleep(0.2)
    assert texts == ["Now please"]
    time.sleep(0.5)
    with pytest.raises(NotFoundError):
        client.agents.schedule.retrieve(once.id, agent_id=agent.id)
    assert client.agents.schedule.delete(cron.id, agent_id=agent.id).success
