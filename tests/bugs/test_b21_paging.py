"""B21 (letta-ai/letta-agent-sdk #239): every client reaches each message once, in a fork as in any conversation."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.models import Conversation, Message
from tests.api.paging import walk
from tests.conftest import Api, make_agent

TOTAL = 25


@pytest.mark.parametrize("is_fork", [False, True])
def test_each_way_of_paging_gives_each_message_once(idle_api: Api, is_fork: bool) -> None:
    agent = make_agent(idle_api)
    made = idle_api.post(f"/v1/conversations?agent_id={agent['id']}", {}).json()
    expected = _fill(made, TOTAL - 1 - (10 if is_fork else 0))
    if is_fork:
        made = idle_api.post(f"/v1/conversations/{made['id']}/fork").json()
        expected += _fill(made, 10)
    path = f"/v1/conversations/{made['id']}/messages"
    system = idle_api.get(f"{path}?order=asc&limit=1").json()[0]["id"]
    expected = [system, *expected]
    assert len(expected) == TOTAL
    assert walk(idle_api, path, limit=10) == expected[::-1]  # the SDKs' pager
    assert _backwards(idle_api, path) == expected[::-1]  # LACE
    assert walk(idle_api, f"{path}?order=asc", limit=10) == expected


def _fill(conversation: dict[str, Any], count: int) -> list[str]:
    row = Conversation.objects.get(pk=conversation["id"].removeprefix("conv-"))
    rows = [
        Message(
            conversation=row,
            agent_id=row.agent_id,
            sequence=row.last_sequence + 1 + number,
            role=Message.Role.USER,
            text=f"{number}",
        )
        for number in range(count)
    ]
    Message.objects.bulk_create(rows)
    Conversation.objects.filter(pk=row.pk).update(last_sequence=row.last_sequence + count)
    return [f"message-{message.id}" for message in rows]


def _backwards(api: Api, path: str) -> list[str]:
    """Page as the Android client does: desc, before the oldest it has."""
    seen: list[str] = []
    while page := api.get(
        f"{path}?order=desc&limit=10{f'&before={seen[-1]}' if seen else ''}"
    ).json():
        seen += [m["id"] for m in page]
    return seen
