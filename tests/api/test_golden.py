"""The exchanges recorded with the old server, replayed in their order against this one.

`golden.json` holds the requests and the looks of the answers (tests.api.shapes). `DIFFERENCES` are the
deliberate ones; docs/api.md lists them for people.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from agents.providers.registry import override_providers
from souveraine.errors import ProviderError
from souveraine.testing.fake_provider import Call, FakeProvider, Reply
from tests.api.shapes import compare, merged
from tests.conftest import Answer, Api

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
EXCHANGES: list[dict[str, Any]] = GOLDEN["exchanges"]
PLAIN = [
    "health",
    "models",
    "models/embedding",
    "agents",
    "agents/count",
    "blocks",
    "blocks/count",
    "conversations",
    "runs",
]

# Number of the exchange: (what is expected here instead, why). A number as `status`; a pattern of the
# differences' texts to accept as `accept`; a pattern of the error text as `detail`.
DIFFERENCES: dict[int, tuple[dict[str, Any], str]] = {
    5: ({"accept": "the list is empty"}, "embedding models are those that a provider really has"),
    12: ({"accept": "tool"}, "an agent of an old type gets the tools of the new one"),
    13: ({"accept": "tool_rules"}, "an agent of an old type gets the tools of the new one"),
    19: ({"accept": "answer.tags: the list is empty"}, "include limits for every caller"),
    28: (
        {"status": 400, "detail": "would hold 50 characters, its limit is 10"},
        "limits and read_only hold",
    ),
    35: ({"accept": "stderr"}, "what went wrong in a tool stands in tool_return"),
    42: ({"status": 200}, "streaming=true works for every client, not only for 1.x SDKs"),
    69: ({"status": 200}, "following a run needs no body"),
    74: ({"accept": "conversation_id|run_type"}, "every run names its conversation"),
    90: ({"accept": "error_type"}, "the type of an error is the same in a stream"),
    91: ({"accept": "error.type"}, "an empty answer is an error"),
    92: ({"accept": "stop_reason|the kinds differ"}, "an empty answer is an error"),
    93: ({"accept": "stop_reason|error_type|the kinds differ"}, "one stop_reason, then [DONE]"),
    94: ({"accept": "stop_reason|error_type|the kinds differ"}, "one stop_reason, then [DONE]"),
    95: ({"accept": "stop_reason|error_type|the kinds differ"}, "one stop_reason, then [DONE]"),
    96: ({"accept": "stop_reason|error_type|the kinds differ"}, "one stop_reason, then [DONE]"),
    101: ({"status": 404, "detail": "^Agent with ID agent-0000"}, "bare UUIDs are accepted"),
    102: ({"detail": "^Agent with ID .* not found$"}, "no inner state of the server in errors"),
    103: ({"detail": "^Agent with ID .* not found$"}, "no inner state of the server in errors"),
    106: ({"detail": "^Agent with ID .* not found$"}, "one text for an unknown agent"),
    107: ({"detail": "^Agent with ID .* not found$"}, "no inner state of the server in errors"),
    108: ({"detail": "^Conversation not found with id="}, "no inner state of the server in errors"),
    109: ({"detail": "^Agent with ID .* not found$"}, "one text for an unknown agent"),
    111: ({"detail": "^Run not found with id="}, "no inner state of the server in errors"),
    112: ({"detail": "^Run not found with id="}, "no inner state of the server in errors"),
    113: ({"status": 200}, "without a model the default one is taken"),
    114: (
        {"detail": "^NOT_FOUND: Handle openai-proxy/nope not found, must be one of"},
        "names them",
    ),
    118: ({"status": 400, "detail": "Duplicate block label 'human'"}, "labels are unique"),
    122: ({"detail": "'role'"}, "the list of errors is of our own body classes"),
    123: (
        {"detail": "Cannot specify both 'input' and 'messages'"},
        "the body is echoed as it was given",
    ),
    124: ({"detail": "'content'"}, "the list of errors is of our own body classes"),
    125: (
        {"status": 422, "detail": "NUL character"},
        "what cannot be stored everywhere is refused",
    ),
    126: (
        {"status": 422, "detail": "lone surrogate"},
        "what cannot be stored everywhere is refused",
    ),
    127: (
        {"status": 422, "detail": "NUL character"},
        "what cannot be stored everywhere is refused",
    ),
    130: ({"status": 422, "detail": "'limit'"}, "a wrong limit is the caller's error"),
    131: ({"status": 422, "detail": "'limit'"}, "a wrong limit is the caller's error"),
    132: (
        {"status": 404, "detail": "not found"},
        "an unknown cursor is an error, not a first page",
    ),
    136: ({"accept": "embedding"}, "without a model the default one is taken"),
    137: (
        {"detail": "^NOT_FOUND: Handle openai-proxy/nope not found, must be one of"},
        "names them",
    ),
    138: (
        {"detail": "^NOT_FOUND: Handle openai-proxy/nope not found, must be one of"},
        "names them",
    ),
    141: (
        {"accept": r"answer\.tools\["},
        "an agent's tools are in the order in which the model is offered them",
    ),
    142: ({"accept": "status|stdout|stderr"}, "custom code waits for the sandbox"),
    151: ({"detail": "^Agent with ID .* not found$"}, "no inner state of the server in errors"),
}
# Differences in every exchange: a pattern of the difference's text, and why.
EVERYWHERE: dict[str, str] = {
    r"\.(created_by_id|last_updated_by_id): null was expected": "we know who made it",
    r"^answer\[\d\]\.message_ids: the list is empty": "a list of agents leaves message_ids out",
    r"model_endpoint: str was expected, not None": "an agent is not bound to a provider's address",
    r"embedding_config: is null": "embedding models are those that a provider really has",
    r"compaction_settings: is null": "compaction_settings is null unless it was given",
    r"_tokens: int was expected, not None": "null means that the provider did not count",
    r"\.(ttft|total_duration)_ns: null was expected": "every run is measured",
    r"user_message\.step_id: str": "a user message belongs to no step: it is stored before the first",
    r"\.seq_id: null was expected, not \d": "frames are numbered in the foreground too, to resume",
}
PROVIDER_ERRORS = {
    "500": "llm_error",
    "429": "llm_rate_limit",
    "401": "llm_authentication",
    "400": "llm_bad_request",
}


def number_of(exchange: dict[str, Any]) -> int:
    return int(exchange["name"].split("-")[0])


def replies_to(body: str) -> list[Reply]:
    """Return what the scripted model of the recording answered to a body with a [[llm …]] directive."""
    found = re.search(r"\[\[llm ([^\]]*)\]\]", body)
    if found is None:
        return []
    given = {k: unquote(v) for k, v in (part.split("=", 1) for part in found[1].split())}
    text = " ".join(f"w{i}" for i in range(int(given.get("n", 20))))
    reasoning = " ".join(f"r{i}" for i in range(int(given.get("reasoning", 0))))
    final = Reply(text=text, reasoning=reasoning)
    kind, _, at = given.get("fail", "").partition(":")
    if kind in PROVIDER_ERRORS:
        return [Reply(error=ProviderError(PROVIDER_ERRORS[kind], f"{kind} fake failure"))]
    if kind in ("cut", "err"):
        return [Reply(text=text, error=ProviderError("llm_error", "cut"), error_after=int(at))]
    if kind == "empty":
        return [Reply(text="")] * 3
    if kind == "notool":
        return [Reply(tool_calls=[Call("no_such_tool")]), final]
    if kind == "badargs":
        return [Reply(tool_calls=[Call(given["tool"], "{not json")]), final]
    if "tool" not in given:
        return [final]
    arguments: dict[str, Any] = {k[4:]: v for k, v in given.items() if k.startswith("arg.")}
    arguments |= {k[5:]: int(v) for k, v in given.items() if k.startswith("argi.")}
    called = Reply(text=given.get("say", ""), tool_calls=[Call(given["tool"], arguments)])
    return [called] if '"max_steps": 1' in body else [called, final]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    monkeypatch.setattr("conversations.turn.model_call.FIRST_RETRY_SECONDS", 0.01)
    fake = FakeProvider("openai", models=("fake-model",))
    with override_providers({"openai": fake}):
        yield fake


def full(look: Any) -> Any:
    """Put the looks that the file keeps once back into their places."""
    if isinstance(look, str) and look.startswith("#"):
        return full(GOLDEN["looks"][look])
    if isinstance(look, list):
        return [full(inner) for inner in look]
    if isinstance(look, dict):
        return {key: full(inner) for key, inner in look.items()}
    return look


def kinds(frames: list[Any]) -> list[str]:
    names = []
    for frame in frames:
        kind = frame if isinstance(frame, str) else frame["message_type"]
        names.append(kind["="] if isinstance(kind, dict) else kind)
    return names


class Replay:
    """Sends the exchanges one after another and collects where the answers differ."""

    def __init__(self, api: Api, provider: FakeProvider) -> None:
        self.api, self.provider = api, provider
        self.bound: dict[str, str] = {}
        self.failures: list[str] = []

    def named(self, text: str) -> str:
        return re.sub(r"@[a-z]+\d+", lambda m: self.bound.get(m[0], m[0]), text)

    def play(self, exchange: dict[str, Any]) -> None:
        if number_of(exchange) == 139:
            self.provider.clear()  # replies to requests that were refused
        self.provider.enqueue(*replies_to(exchange["body"]))
        body = self.named(exchange["body"]).encode()
        headers = {"content-type": "application/json", "user-agent": "golden/1"}
        answer = self.api.request(
            exchange["method"], self.named(exchange["path"]), body=body, headers=headers
        )
        expected, _ = DIFFERENCES.get(number_of(exchange), ({}, ""))
        found = self.differences(exchange, answer, expected)
        accept = expected.get("accept")
        for text in found:
            is_known = any(re.search(pattern, text) for pattern in EVERYWHERE)
            if not is_known and not (accept and re.search(accept, text)):
                self.failures.append(f"{exchange['name']}: {text}")
        if number_of(exchange) == 64 and answer.frames():
            self.bound["@run1"] = answer.frames()[0]["run_id"]
        if number_of(exchange) == 49:
            self.bound["@message1"] = answer.json()[0]["id"]

    def differences(
        self, exchange: dict[str, Any], answer: Answer, expected: dict[str, Any]
    ) -> list[str]:
        status = expected.get("status", exchange["status"])
        if answer.status != status:
            return [f"status {status} was expected, not {answer.status}: {answer.body[:300]!r}"]
        if status >= 400 and ("detail" in expected or "error" in exchange):
            return self.error_differences(exchange, answer, expected)
        if "status" in expected:
            return []
        if "frames" in exchange:
            return self.stream_differences(exchange, answer)
        if not answer.body:
            return ["the body is empty"]
        return self.json_differences(exchange, answer.json())

    def error_differences(
        self, exchange: dict[str, Any], answer: Answer, expected: dict[str, Any]
    ) -> list[str]:
        body = answer.json()
        if "detail" in expected:
            is_it = re.search(expected["detail"], body["detail"])
            return [] if is_it else [f"the text is {body['detail'][:200]!r}"]
        wanted = exchange["error"]
        missing = [key for key in wanted["keys"] if key not in body]
        found = [f"{key} is missing" for key in missing]
        if _comparable(body["detail"]) != _comparable(self.named(wanted["detail"])):
            found.append(f"the text is {body['detail'][:300]!r}, was {wanted['detail']!r}")
        return found

    def stream_differences(self, exchange: dict[str, Any], answer: Answer) -> list[str]:
        looks, frames = [full(f) for f in exchange["frames"]], merged(answer.frames())
        if kinds(frames) != kinds(looks):
            return [f"the kinds differ: {kinds(frames)} instead of {kinds(looks)}"]
        found = []
        for look, frame in zip(looks, frames, strict=True):
            if isinstance(frame, dict):
                found += compare(look, frame, frame["message_type"], self.bound)
        return found

    def json_differences(self, exchange: dict[str, Any], got: Any) -> list[str]:
        look = full(exchange["answer"])
        if "kinds" in exchange:
            return self.message_list_differences(got)
        found = compare(look, got, "answer", self.bound)
        if isinstance(look, dict) and "messages" in look:
            wanted, have = kinds(look["messages"]), kinds(got["messages"])
            if wanted != have:
                found.append(f"the kinds differ: {have} instead of {wanted}")
        return found

    def message_list_differences(self, got: Any) -> list[str]:
        """Compare each message with a recorded one of its type, whichever list it was in."""
        if not isinstance(got, list) or not got:
            return [f"answer: messages were expected, not {got!r:.80}"]
        found = []
        for frame in got:
            look = STORED[frame["message_type"]]
            found += compare(look, frame, frame["message_type"], {})
        return found


def _stored_looks() -> dict[str, Any]:
    """Return the look of a stored message by type, as the recorded lists have them."""
    lists = [full(exchange["answer"]) for exchange in EXCHANGES if "kinds" in exchange]
    return {look["message_type"]["="]: look for found in lists for look in found}


STORED = _stored_looks()


def _comparable(detail: str) -> Any:
    """Read the text of an error list, so that the order of its keys does not count."""
    try:
        return ast.literal_eval(detail)
    except (ValueError, SyntaxError):
        return detail


def test_every_recorded_exchange_gets_an_answer_of_the_same_shape(
    api: Api, provider: FakeProvider
) -> None:
    replay = Replay(api, provider)
    for exchange in EXCHANGES:
        replay.play(exchange)
    assert not replay.failures, "\n" + "\n".join(replay.failures)


def test_each_deliberate_difference_is_told_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    reasons = {reason for _, reason in DIFFERENCES.values()} | set(EVERYWHERE.values())
    assert [reason for reason in sorted(reasons) if reason not in text] == []


def test_no_list_or_collection_answers_with_a_redirect(api: Api) -> None:
    for path in PLAIN:
        for slash in ("", "/"):
            assert api.get(f"/v1/{path}{slash}").status == 200, path + slash
