"""`make bench-history`: what a long history and many agents cost: lists, pages, search, a turn.

Two agents come from agent files, with 20 messages and with 20,000; both have the last 20 in their window.

    python -m souveraine.testing.bench.history [--rounds 3] [--messages 20000] [--agents 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from souveraine.testing.bench.load import MODEL, Bench, report
from souveraine.testing.bench.processes import model_double, server

SHORT = WINDOW = 20
CREATED_AT_ONCE = 4
REPEATS = 20
TURNS = 20
WORDS = "lunch soup bread cheese walk rain train garden letter music paint river".split()  # noqa: SIM905
FULL = {"limit": 50}
BARE = {"limit": 50, "slim": "true"}


def agent_file(messages: int) -> bytes:
    """Return an agent file with so many messages."""
    said = [
        {
            "id": f"message-{n}",
            "type": "message",
            "role": "assistant" if n % 2 else "user",
            "content": [
                {
                    "type": "text",
                    "text": f"We spoke of {WORDS[n % 12]}, {WORDS[n // 12 % 12]}, number {n}.",
                }
            ],
            "created_at": f"2025-01-{n // 1440 % 28 + 1:02d}T{n // 60 % 24:02d}:{n % 60:02d}:00+00:00",
        }
        for n in range(messages)
    ]
    agent = {
        "id": "agent-0",
        "name": f"{messages} messages",
        "agent_type": "letta_v1_agent",
        "system": "You are a bench.",
        "llm_config": {"handle": MODEL, "model": MODEL.partition("/")[2]},
        "messages": said,
        "in_context_message_ids": [m["id"] for m in said[-WINDOW:]],
    }
    empty: dict[str, Any] = {
        key: [] for key in ("groups", "blocks", "files", "sources", "tools", "mcp_servers")
    }
    return json.dumps({"agents": [agent], **empty, "metadata": {}}).encode()


class HistoryBench(Bench):
    """The same calls with little and with much behind them."""

    async def imported(self, messages: int) -> str:
        """Import an agent and return its id."""
        answer = await self._client.post(
            "/v1/agents/import", files={"file": ("a.af", agent_file(messages))}, timeout=600
        )
        answer.raise_for_status()
        return str(answer.json()["agent_ids"][0])

    async def history(self, messages: int) -> None:
        """Time a first page, a search and a turn of an agent with so many messages."""
        agent, name = await self.imported(messages), f"{messages:,} messages"
        page = self._get(f"/v1/agents/{agent}/messages", {"limit": 50})
        await self._timed(f"{name}: first page", REPEATS, page)
        query = {"query": "What about soup, bread and number 7?", "agent_id": agent, "limit": 10}
        await self._timed(f"{name}: search", REPEATS, self._post("/v1/messages/search", query))
        await self._sync_turn(agent)
        overheads = sorted([await self._sync_turn(agent) for _ in range(TURNS)])
        self.note(f"{name}: turn overhead, p50", overheads[len(overheads) // 2])

    async def many_agents(self, count: int) -> None:
        """Time a page of 50 of so many agents, with and without what belongs to them, and one agent."""
        slots = asyncio.Semaphore(CREATED_AT_ONCE)

        async def create() -> str:
            async with slots:
                return await self.agent()

        made = await asyncio.gather(*(create() for _ in range(count)))
        name = f"50 of {count:,} agents"
        await self._timed(f"{name}, all of each", REPEATS, self._get("/v1/agents/", FULL))
        await self._timed(f"{name}, without relations", REPEATS, self._get("/v1/agents/", BARE))
        await self._timed("one agent", REPEATS, self._get(f"/v1/agents/{made[0]}", {}))

    def _get(self, path: str, query: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
        async def call() -> None:
            (await self._client.get(path, params=query)).raise_for_status()

        return call

    def _post(self, path: str, body: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
        async def call() -> None:
            (await self._client.post(path, json=body)).raise_for_status()

        return call


async def run(url: str, double: str, pid: Any, arguments: argparse.Namespace) -> Bench:
    """Run all rounds."""
    async with (
        httpx.AsyncClient(base_url=url, timeout=120) as client,
        httpx.AsyncClient(base_url=double, timeout=30) as model,
    ):
        bench = HistoryBench(client, model, pid, TURNS)
        await bench.many_agents(arguments.agents)
        for number in range(arguments.rounds):
            print(f"round {number + 1}/{arguments.rounds}", flush=True)
            await bench.history(SHORT)
            await bench.history(arguments.messages)
        return bench


def main() -> None:
    """Start a server of its own, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--agents", type=int, default=1_000)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sv-bench-") as folder,
        model_double() as double,
        server(Path(folder) / "data", double) as running,
    ):
        report(asyncio.run(run(running.url, double, running, arguments)))


if __name__ == "__main__":
    main()
