"""`make bench`: latency, throughput and cost of a whole server against a model double.

The double notes when each call came in, when it sent the first token and when the last; that time is
subtracted turn by turn, so what remains is ours. Each figure is the median of `--rounds` rounds.

    python -m souveraine.testing.bench.load [--rounds 3] [--turns 30] [--only sync,stream,…] [--out FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from souveraine.testing.bench.processes import Running, cpu_seconds, model_double, server, tree

OLD_SERVER = {  # the archived server, tuned, on a machine like the one of the figures in docs/benchmarks.md
    "stream: first token, overhead p50": 142.0,
    "sync: overhead p50": 225.0,
    "list of 50 agents: p50": 154.0,
    "32 clients: first token p99": 4900.0,
}
AIMS = {
    "stream: first token, overhead p50": 30.0,
    "sync: overhead p50": 40.0,
    "list of 50 agents: p50": 30.0,
    "32 clients: first token p99": 1000.0,
}
CLIENTS = (1, 8, 32, 64)
MODEL = "openai/double"


def percentile(values: list[float], share: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Bench:
    """One round after the other against one server."""

    def __init__(
        self, client: httpx.AsyncClient, double: httpx.AsyncClient, running: Running, turns: int
    ) -> None:
        self._client, self._double, self._running, self._turns = client, double, running, turns
        self.figures: dict[str, list[float]] = {}
        self.errors = 0

    def note(self, name: str, value: float) -> None:
        """Add one round's figure."""
        self.figures.setdefault(name, []).append(value)

    async def agent(self) -> str:
        """Create an agent and return its id."""
        answer = await self._client.post("/v1/agents/", json={"name": "bench", "model": MODEL})
        answer.raise_for_status()
        return str(answer.json()["id"])

    def _body(self, tag: str, **instructions: Any) -> dict[str, Any]:
        return {
            "messages": [
                {"role": "user", "content": "hi ## " + json.dumps({"id": tag, **instructions})}
            ]
        }

    async def _model_times(self, tag: str) -> dict[str, float]:
        return dict((await self._double.get("/times", params={"id": tag})).json())

    async def _timed(self, name: str, count: int, operation: Callable[[], Awaitable[Any]]) -> None:
        cpu, times = cpu_seconds(tree(self._running.pid)), []
        for _ in range(count):
            started = time.monotonic()
            await operation()
            times.append((time.monotonic() - started) * 1000)
        self.note(f"{name}: p50", percentile(times, 0.5))
        self.note(f"{name}: CPU", (cpu_seconds(tree(self._running.pid)) - cpu) * 1000 / count)

    async def create(self) -> None:
        """Time the creation of agents."""
        await self._timed("create agent", 20, self.agent)

    async def listing(self) -> None:
        """Time the list of 50 agents."""

        async def listed() -> None:
            found = (await self._client.get("/v1/agents/", params={"limit": 50})).json()
            assert len(found) == 50

        while len((await self._client.get("/v1/agents/", params={"limit": 50})).json()) < 50:
            await self.agent()
        await self._timed("list of 50 agents", 20, listed)

    async def sync(self) -> None:
        """Time JSON turns, the model's own time subtracted."""
        agent, overheads = await self.agent(), []
        await self._sync_turn(agent)
        cpu = cpu_seconds(tree(self._running.pid))
        for _ in range(self._turns):
            overheads.append(await self._sync_turn(agent))
        self.note("sync: overhead p50", percentile(overheads, 0.5))
        self.note("sync: overhead p99", percentile(overheads, 0.99))
        self.note(
            "sync: CPU per turn", (cpu_seconds(tree(self._running.pid)) - cpu) * 1000 / self._turns
        )

    async def _sync_turn(self, agent: str) -> float:
        tag, started = uuid.uuid4().hex, time.monotonic()
        answer = await self._client.post(
            f"/v1/agents/{agent}/messages", json=self._body(tag, words=20)
        )
        took = time.monotonic() - started
        answer.raise_for_status()
        times = await self._model_times(tag)
        return (took - (times["end"] - times["received"])) * 1000

    async def _stream_turn(self, agent: str, **instructions: Any) -> tuple[float, float, int]:
        """Return first-token overhead and whole duration in ms, and how many text frames came."""
        tag, started, first, frames, tail = uuid.uuid4().hex, time.monotonic(), 0.0, 0, b""
        body = {**self._body(tag, **instructions), "stream_tokens": True}
        async with self._client.stream(
            "POST", f"/v1/agents/{agent}/messages/stream", json=body
        ) as answer:
            async for chunk in answer.aiter_raw():
                found = (tail + chunk).count(b'"message_type":"assistant_message"') - tail.count(
                    b'"message_type":"assistant_message"'
                )
                if found and not frames:
                    first = time.monotonic()
                frames += found
                tail = (tail + chunk)[-200:]
        took = time.monotonic() - started
        if not tail.rstrip().endswith(b"[DONE]") or not frames:
            self.errors += 1
            return 0.0, took * 1000, frames
        times = await self._model_times(tag)
        return (first - started - (times["first"] - times["received"])) * 1000, took * 1000, frames

    async def stream(self) -> None:
        """Time streamed turns to the first token."""
        agent, overheads = await self.agent(), []
        await self._stream_turn(agent, words=20)
        for _ in range(self._turns):
            overheads.append((await self._stream_turn(agent, words=20))[0])
        self.note("stream: first token, overhead p50", percentile(overheads, 0.5))
        self.note("stream: first token, overhead p99", percentile(overheads, 0.99))

    async def long(self) -> None:
        """Stream 2,000 tokens as fast as the model gives them."""
        agent = await self.agent()
        cpu = cpu_seconds(tree(self._running.pid))
        _, took, frames = await self._stream_turn(agent, words=2000)
        self.note("2,000 tokens: tokens/s", frames / took * 1000)
        self.note(
            "2,000 tokens: CPU per token",
            (cpu_seconds(tree(self._running.pid)) - cpu) * 1000 / max(frames, 1),
        )

    async def clients(self) -> None:
        """Run streamed turns of several clients at once, each with its own agent."""
        for count in CLIENTS:
            agents = [await self.agent() for _ in range(count)]
            per_client = max(4, 64 // count)  # a 99th percentile needs more than 100 turns
            started = time.monotonic()

            async def talk(agent: str, turns: int = per_client) -> list[float]:
                return [(await self._stream_turn(agent, words=20))[0] for _ in range(turns)]

            firsts = [
                t for one in await asyncio.gather(*(talk(agent) for agent in agents)) for t in one
            ]
            took = time.monotonic() - started
            self.note(f"{count} clients: turns/s", count * per_client / took)
            self.note(f"{count} clients: first token p99", percentile(firsts, 0.99))


SCENARIOS = ("create", "listing", "sync", "stream", "long", "clients")


async def run(running: Running, double: str, arguments: argparse.Namespace) -> Bench:
    """Run the chosen scenarios."""
    limits = httpx.Limits(max_connections=200)
    chosen = arguments.only.split(",") if arguments.only else SCENARIOS
    async with (
        httpx.AsyncClient(base_url=running.url, timeout=120, limits=limits) as client,
        httpx.AsyncClient(base_url=double, timeout=30) as model,
    ):
        bench = Bench(client, model, running, arguments.turns)
        for number in range(arguments.rounds):
            for name in chosen:
                print(f"round {number + 1}/{arguments.rounds}: {name}", flush=True)
                await getattr(bench, name)()
        return bench


def report(bench: Bench) -> dict[str, float]:
    """Print the table and return the medians."""
    medians = {name: statistics.median(values) for name, values in bench.figures.items()}
    print(f"\n{'figure (ms unless it says otherwise)':48}{'median':>10}{'aim':>8}{'old':>8}")
    for name, value in medians.items():
        aim, old = AIMS.get(name), OLD_SERVER.get(name)
        print(f"{name:48}{value:10.1f}{aim if aim else '':>8}{old if old else '':>8}")
    print(f"errors: {bench.errors}")
    return medians


def main() -> None:
    """Start a server of its own, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=30, help="turns per round of sync and stream")
    parser.add_argument("--only", default="", help=f"comma list of {', '.join(SCENARIOS)}")
    parser.add_argument("--out", type=Path, help="write the medians as JSON")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sv-bench-") as folder,
        model_double() as double,
        server(Path(folder) / "data", double) as running,
    ):
        medians = report(asyncio.run(run(running, double, arguments)))
    if arguments.out:
        arguments.out.write_text(json.dumps(medians, indent=2) + "\n")


if __name__ == "__main__":
    main()
