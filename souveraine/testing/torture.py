"""Kill everything at random and count what was lost, doubled or stuck: all must be 0.

    make torture N=1000            or: python -m souveraine.testing.torture --turns 1000 [--postgres …] [--redis]

One web process, two workers, and clients that talk in conversations of their own: each message has an otid,
is sent again until it is accepted, and its stream is followed again until it ends, whatever dies meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from souveraine.testing.stack import Process, Stack, stack

CLIENTS = 8
AGENTS = 4
WORKERS = 2
LEASE_SECONDS = 6.0  # PostgreSQL; on SQLite a lease must outlast the busy time-out
SQLITE_LEASE_SECONDS = 25.0
STUCK_SECONDS = 300.0
KILL_EVERY_TURNS = (2, 8)  # by progress, not by time: a slow machine needs as long as it needs
KILL_JITTER_SECONDS = 2.0  # so that kills hit any moment of a turn
WORDS = [f"word{number}" for number in range(40)]
BLOCK = "human"
RETRY_SECONDS = 0.3
NO_ANSWER = (httpx.HTTPError, OSError)


@dataclass
class Turn:
    """What a client sent, and what must come of it."""

    otid: str
    conversation: str
    agent: str
    text: str
    answer: str
    effects: list[str]
    calls: int
    run_ids: set[str] = field(default_factory=set)
    shown: dict[str, str] = field(default_factory=dict)
    last_seq: int = 0
    is_ended: bool = False
    has_failed: bool = False  # given up by the server; it is sent again


@dataclass
class Tally:
    """What is counted; `problems` holds a line for each thing that must not be."""

    turns: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    given_up: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Count a problem as `lost`, `doubled` or `stuck`."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.problems.append(f"{kind}: {text}")

    def line(self) -> str:
        """Return the figures in one line."""
        kills = ", ".join(f"{n} {name}" for name, n in sorted(self.kills.items())) or "none"
        return (
            f"turns {self.turns} · kills {sum(self.kills.values())} ({kills}) · given up and sent again "
            f"{self.given_up} · lost {self.lost} · doubled {self.doubled} · stuck {self.stuck}"
        )


class Client:
    """Talks in one conversation, one message after the other."""

    def __init__(self, number: int, torture: Torture, agent: str, conversation: str) -> None:
        self._number, self._torture = number, torture
        self._agent, self._conversation = agent, conversation
        self._random = random.Random(f"{torture.seed}-{number}")
        self.turns: list[Turn] = []

    async def talk(self) -> None:
        """Send messages while the torture wants more."""
        while self._torture.wants_more():
            turn = self._new_turn()
            self.turns.append(turn)
            try:
                async with asyncio.timeout(STUCK_SECONDS):
                    while not turn.is_ended:
                        await self._follow(turn)
            except TimeoutError:
                self._torture.tally.note("stuck", f"{turn.otid} {sorted(turn.run_ids)}")
                return
            self._torture.tally.turns += 1

    def _new_turn(self) -> Turn:
        otid = f"c{self._number}-t{len(self.turns)}"
        answer = " ".join(self._random.choices(WORDS, k=self._random.randint(3, 25)))
        script: dict[str, Any] = {
            "id": otid,
            "text": answer,
            "delay_ms": self._random.choice((0, 10, 40)),
            "first_ms": self._random.choice((0, 100)),
        }
        effects: list[str] = []
        if self._random.random() < 0.5:
            effects = [f"{otid}-{i}." for i in range(self._random.randint(1, 3))]
            tools = [
                {"name": "memory_insert", "arguments": {"label": BLOCK, "new_string": effect}}
                for effect in effects
            ]
            search = {"name": "conversation_search", "arguments": {"query": answer.split()[0]}}
            script |= {"tools": [*tools, search], "intro": "Let me see."}
        calls = len(effects) + 1 if effects else 0
        text = f"{otid} ## {json.dumps(script)}"
        return Turn(otid, self._conversation, self._agent, text, answer, effects, calls)

    async def _follow(self, turn: Turn) -> None:
        """Send, or follow again, until the stream ends or breaks."""
        turn.has_failed = False
        url = f"{self._torture.stack.url}/v1/conversations/{turn.conversation}/messages"
        body = {
            "messages": [{"role": "user", "content": turn.text, "otid": turn.otid}],
            "stream_tokens": True,
            "include_pings": True,
        }
        if turn.run_ids:
            run_id = max(turn.run_ids, key=lambda r: r == self._newest)
            url = f"{self._torture.stack.url}/v1/runs/{run_id}/stream"
            body = {"starting_after": turn.last_seq, "include_pings": True}
        try:
            async with self._torture.http.stream("POST", url, json=body) as response:
                if response.status_code != 200:
                    await response.aread()
                    await asyncio.sleep(RETRY_SECONDS)
                    return
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        self._take(turn, line[6:])
                    if turn.is_ended:
                        return
        except NO_ANSWER:
            await asyncio.sleep(RETRY_SECONDS)

    _newest = ""

    def _take(self, turn: Turn, data: str) -> None:
        if data == "[DONE]":
            turn.is_ended = not turn.has_failed
            return
        frame = json.loads(data)
        kind = frame["message_type"]
        if run_id := frame.get("run_id"):
            turn.run_ids.add(run_id)
            self._newest = run_id
        if kind == "ping" and frame.get("seq_id") is None:
            return
        seq = frame.get("seq_id")
        if seq is not None and kind != "ping":
            if seq <= turn.last_seq:
                self._torture.tally.note("doubled", f"{turn.otid}: frame {seq} again: {data[:200]}")
            turn.last_seq = max(turn.last_seq, seq)
        if kind == "souveraine_retracted":
            turn.shown = {k: v for k, v in turn.shown.items() if k != frame["id"]}
        elif kind == "assistant_message":
            turn.shown[frame["id"]] = turn.shown.get(frame["id"], "") + frame["content"]
        elif kind == "error_message":
            self._fail(turn, frame)

    def _fail(self, turn: Turn, frame: dict[str, Any]) -> None:
        if "given up" not in frame["message"]:
            self._torture.tally.note("lost", f"{turn.otid}: {frame}")
            return
        # As its text says: the message is kept, and sending it again tries it again.
        self._torture.tally.given_up += 1
        turn.has_failed = True
        turn.run_ids.clear()
        turn.last_seq = 0
        turn.shown.clear()


class Torture:
    """The stack, the clients, and the hand that kills."""

    def __init__(self, made: Stack, arguments: argparse.Namespace) -> None:
        self.stack, self.seed, self._arguments = made, arguments.seed, arguments
        self.tally = Tally()
        self.http = httpx.AsyncClient(timeout=httpx.Timeout(30.0, read=60.0), limits=httpx.Limits())
        self._random = random.Random(arguments.seed)
        self._deadline = time.monotonic() + arguments.minutes * 60
        self._begun = 0
        self._parts: dict[str, Process] = {}
        self._clients: list[Client] = []

    def wants_more(self) -> bool:
        """Take a turn from the rest; False when there is none, or no time."""
        if self._begun >= self._arguments.turns or time.monotonic() > self._deadline:
            return False
        self._begun += 1
        return True

    async def run(self) -> Tally:
        """Play; returns the figures."""
        self._parts["web"] = self.stack.start("web")
        for number in range(WORKERS):
            self._parts[f"worker {number}"] = self.stack.start("worker")
        await asyncio.to_thread(self.stack.wait_healthy)
        await self._make_clients()
        killer = asyncio.create_task(self._kill_for_ever())
        ticker = asyncio.create_task(self._tick())
        await asyncio.gather(*(client.talk() for client in self._clients))
        for task in (killer, ticker):
            task.cancel()
        await asyncio.gather(killer, ticker, return_exceptions=True)
        await self._revive()
        await self._compare()
        await self.http.aclose()
        return self.tally

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = await self.http.post(f"{self.stack.url}{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    async def _get(self, path: str) -> Any:
        answer = await self.http.get(f"{self.stack.url}{path}")
        answer.raise_for_status()
        return answer.json()

    async def _make_clients(self) -> None:
        agents = []
        for number in range(AGENTS):
            block = {"label": BLOCK, "value": "-", "limit": 1_000_000}
            body = {"name": f"t{number}", "model": "openai/double", "memory_blocks": [block]}
            agents.append((await self._post("/v1/agents/", body))["id"])
        for number in range(CLIENTS):
            agent = agents[number % AGENTS]
            made = await self._post(f"/v1/conversations/?agent_id={agent}", {})
            self._clients.append(Client(number, self, agent, made["id"]))

    async def _kill_for_ever(self) -> None:
        while True:
            due = self.tally.turns + self._random.randint(*KILL_EVERY_TURNS)
            while self.tally.turns < due:
                await asyncio.sleep(0.05)
            await asyncio.sleep(self._random.uniform(0, KILL_JITTER_SECONDS))
            names = [*self._parts, *(["redis"] if self._arguments.redis else [])]
            weights = [1 if name in ("web", "redis") else 3 for name in names]
            await asyncio.to_thread(self._kill, self._random.choices(names, weights)[0])

    def _kill(self, name: str) -> None:
        self.tally.kills[name.split()[0]] += 1
        if name == "redis":
            self.stack.kill_redis(loses_data=self._random.random() < 0.5)
            time.sleep(self._random.uniform(0, 1.5))
            self.stack.start_redis()
            return
        process = self._parts[name]
        self.stack.kill(process)
        if name != "web" and self._random.random() < 0.5:  # else its leases have to run out
            self.stack.bury(process)
        self._parts[name] = self.stack.start(name.split()[0])

    async def _revive(self) -> None:
        await asyncio.to_thread(self.stack.wait_healthy)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(10)
            print(self.tally.line(), file=sys.stderr, flush=True)

    async def _compare(self) -> None:
        """Compare what the server has with what was sent and shown."""
        counts = json.loads((await self.http.get(f"{self.stack.double_url}/counts")).content)
        blocks = {}
        for client in self._clients:
            agent = client._agent
            path = f"/v1/agents/{agent}/core-memory/blocks/{BLOCK}"
            blocks[agent] = (await self._get(path))["value"].split()
            stored = await self._messages(client._conversation)
            self._compare_history(client, stored)
            for turn in client.turns:
                self._compare_turn(turn, stored, blocks[agent], counts)

    async def _messages(self, conversation: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            path = f"/v1/conversations/{conversation}/messages?order=asc&limit=200"
            page = await self._get(path + (f"&after={after}" if after else ""))
            page = [m for m in page if m["id"] not in {f["id"] for f in found}]
            if not page:
                return found
            found += page
            after = page[-1]["id"]

    def _compare_history(self, client: Client, stored: list[dict[str, Any]]) -> None:
        users = [m["content"] for m in stored if m["message_type"] == "user_message"]
        sent = [turn.text for turn in client.turns]
        for text, number in Counter(users).items():
            if number > 1:
                self.tally.note("doubled", f"{text[:60]} is stored {number} times")
        for text in sent:
            if text not in users:
                self.tally.note("lost", f"{text[:60]} is not stored")

    def _compare_turn(
        self,
        turn: Turn,
        stored: list[dict[str, Any]],
        block: list[str],
        counts: dict[str, int],
    ) -> None:
        places = [i for i, m in enumerate(stored) if m.get("content") == turn.text]
        if not places or not turn.is_ended:
            return
        own = []
        for message in stored[places[0] + 1 :]:
            if message["message_type"] == "user_message":
                break
            own.append(message)
        texts = [m["content"] for m in own if m["message_type"] == "assistant_message"]
        expected = ["Let me see.", turn.answer] if turn.effects else [turn.answer]
        if texts != expected:
            kind = "doubled" if len(texts) > len(expected) else "lost"
            self.tally.note(kind, f"{turn.otid}: stored {texts}, expected {expected}")
        if list(turn.shown.values()) != expected:
            self.tally.note("lost", f"{turn.otid}: shown {turn.shown}, expected {expected}")
        returns = [m for m in own if m["message_type"] == "tool_return_message"]
        if len(returns) != turn.calls:
            self.tally.note("lost", f"{turn.otid}: {len(returns)} returns of {turn.calls}")
        for effect, row in zip(turn.effects, returns, strict=False):
            times = block.count(effect)
            is_unknown = "outcome is unknown" in str(row["tool_return"])
            if times > 1:
                self.tally.note("doubled", f"{turn.otid}: {effect} took effect {times} times")
            elif times == 0 and not is_unknown:
                self.tally.note("lost", f"{turn.otid}: {effect}: {str(row)[:300]}")
        if counts.get(turn.otid, 0) < len(expected):
            self.tally.note(
                "lost", f"{turn.otid}: the model was asked {counts.get(turn.otid)} times"
            )


def main() -> int:
    """Torture a new stack; 1 when anything was lost, doubled or stuck."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="begin no turn after that time"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--postgres", default="", help="postgres://user@host:port, else SQLite")
    parser.add_argument(
        "--redis", action="store_true", help="kill Redis too, with its data half the time"
    )
    parser.add_argument("--keep-log", default="", help="copy the workers' output to this file")
    arguments = parser.parse_args()
    started = time.monotonic()
    lease = LEASE_SECONDS if arguments.postgres else SQLITE_LEASE_SECONDS
    print(f"seed {arguments.seed}", file=sys.stderr)
    with stack(arguments.postgres, lease) as made:
        tally = asyncio.run(Torture(made, arguments).run())
        if arguments.keep_log:
            subprocess.run(["cp", str(made.log("worker")), arguments.keep_log], check=False)
    print(*tally.problems[:50], sep="\n")
    print(f"{tally.line()} · {time.monotonic() - started:.0f} s, seed {arguments.seed}")
    return 1 if tally.lost or tally.doubled or tally.stuck or tally.turns < 1 else 0


if __name__ == "__main__":
    sys.exit(main())
