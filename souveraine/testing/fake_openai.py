"""An OpenAI-compatible model double as a process of its own, for end-to-end tests and benchmarks.

    python -m souveraine.testing.fake_openai --port 9090

The last user message may end in `## {json}`: {"text", "words", "delay_ms", "first_ms", "tool": {"name",
"arguments"}, "tools": [tool, ...], "status", "cut_after", "id"}. With `tool` or `tools`, the first answer
calls them (after its `intro`, a text) and the one after their returns is text. Nothing is random. `GET
/requests` lists the last 1,000 requests, `/open` says how many answers are being written, `/times?id=`
when (CLOCK_MONOTONIC seconds) the last call with that id was received, sent its first token and ended,
`/counts` how many calls each id has had.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from souveraine.testing.fake_provider import FakeProvider

MODEL = "double"
EMBEDDING_MODEL = "double-embed"
CONTEXT_WINDOW = 32768
DEFAULT_TEXT = "Hello from the double."


class State:
    """What the double remembers; shared by the request threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: deque[dict[str, Any]] = deque(maxlen=1000)
        self.number = 0
        self.open_answers = 0
        self.times: dict[str, dict[str, float]] = {}
        self.counts: Counter[str] = Counter()


def text_of(message: dict[str, Any]) -> str:
    """Return a message's text."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


def plan(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the instructions for this answer."""
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    instructions: dict[str, Any] = {}
    _, marker, tail = text_of(messages[last]).rpartition("## {") if last >= 0 else ("", "", "")
    if marker:
        instructions = json.JSONDecoder().raw_decode("{" + tail)[0]
    if any(m["role"] == "tool" for m in messages[last + 1 :]):
        instructions.pop("tool", None)
        instructions.pop("tools", None)
    if "words" in instructions:
        instructions["text"] = " ".join(f"w{i}" for i in range(instructions["words"]))
    return instructions


def tools_of(instructions: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls that the answer makes."""
    tool = instructions.get("tool")
    return [tool] if tool else instructions.get("tools", [])


def chunks_of(instructions: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Return the deltas of the answer."""
    tools = tools_of(instructions)
    text = instructions.get("intro", "") if tools else instructions.get("text", DEFAULT_TEXT)
    words = text.split(" ") if text else []
    deltas = [{"content": word if i == 0 else f" {word}"} for i, word in enumerate(words)]
    for index, tool in enumerate(tools):
        arguments = json.dumps(tool.get("arguments", {}))
        call = {"index": index, "id": f"call_{number}_{index}", "type": "function"}
        deltas += [
            {"tool_calls": [{**call, "function": {"name": tool["name"], "arguments": ""}}]},
            {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]},
        ]
    return deltas


class Handler(BaseHTTPRequestHandler):
    """GET /v1/models, POST /v1/chat/completions, GET /requests, GET /open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: State

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def _json(self, status: int, payload: Any) -> None:
        body = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Answer listings and questions about what happened."""
        if self.path.endswith("/models"):
            chat = {"id": MODEL, "context_length": CONTEXT_WINDOW}
            self._json(200, {"object": "list", "data": [chat, {"id": EMBEDDING_MODEL}]})
        elif self.path == "/requests":
            self._json(200, list(self.state.requests))
        elif self.path.startswith("/times?id="):
            self._json(200, self.state.times.get(self.path.partition("=")[2], {}))
        elif self.path == "/counts":
            self._json(200, self.state.counts)
        elif self.path == "/open":
            self._json(200, self.state.open_answers)
        else:
            self._json(404, {"error": {"message": "no such route"}})

    def do_POST(self) -> None:
        """Answer a chat completion as a stream, or with vectors."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/embeddings"):
            vectors = FakeProvider().embed(body["model"], body["input"], timeout_seconds=0)
            data = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
            self._json(200, {"object": "list", "model": body["model"], "data": data})
            return
        times = {"received": time.monotonic()}
        with self.state.lock:
            self.state.requests.append(body)
            self.state.number = number = self.state.number + 1
            self.state.open_answers += 1
        instructions = plan(body["messages"])
        if "id" in instructions:
            with self.state.lock:
                self.state.counts[instructions["id"]] += 1
        try:
            self._complete(instructions, number, body, times)
            times["end"] = time.monotonic()
            if "id" in instructions:
                self.state.times[instructions["id"]] = times
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with self.state.lock:
                self.state.open_answers -= 1

    def _complete(
        self,
        instructions: dict[str, Any],
        number: int,
        body: dict[str, Any],
        times: dict[str, float],
    ) -> None:
        if instructions.get("status"):
            self._json(
                instructions["status"],
                {"error": {"message": f"double says {instructions['status']}"}},
            )
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        time.sleep(instructions.get("first_ms", 0) / 1000)
        deltas = chunks_of(instructions, number)
        for index, delta in enumerate(deltas):
            if instructions.get("cut_after") == index:
                self.connection.close()
                return
            times.setdefault("first", time.monotonic())
            self._frame(number, delta, None)
            time.sleep(instructions.get("delay_ms", 0) / 1000)
        self._frame(number, {}, "tool_calls" if tools_of(instructions) else "stop")
        prompt = sum(len(text_of(m)) for m in body["messages"]) // 4
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": len(deltas),
            "total_tokens": prompt + len(deltas),
        }
        self._write(
            {
                "id": f"double-{number}",
                "object": "chat.completion.chunk",
                "model": MODEL,
                "choices": [],
                "usage": usage,
            }
        )
        self.wfile.write(b"data: [DONE]\n\n")

    def _frame(self, number: int, delta: dict[str, Any], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._write(
            {
                "id": f"double-{number}",
                "object": "chat.completion.chunk",
                "model": MODEL,
                "choices": [choice],
            }
        )

    def _write(self, payload: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(payload).encode() + b"\n\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    """Accepts many connections at once."""

    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about callers that were killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def make_server(port: int = 0) -> Server:
    """Return a server bound to the loopback; port 0 takes a free one."""
    handler = type("BoundHandler", (Handler,), {"state": State()})
    return Server(("127.0.0.1", port), handler)


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9090)
    make_server(parser.parse_args().port).serve_forever()


if __name__ == "__main__":
    main()
