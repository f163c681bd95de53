"""Generated calls of every operation of `/openapi.json`: no server error, and answers as described.

The seed is fixed, so CI tries the same calls each time; SOUVERAINE_TEST_EXAMPLES sets how many each operation gets.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS
from schemathesis.core.failures import Failure, FailureGroup

from tests.e2e.conftest import Serve

pytestmark = pytest.mark.e2e
EXAMPLES = int(os.environ.get("SOUVERAINE_TEST_EXAMPLES", "8"))
SEED = 20261201
ENDLESS = {"follow_conversation"}  # answers until the client leaves
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
SECONDS = 15


@pytest.fixture(scope="module")
def known(server: Serve) -> dict[str, list[str]]:
    """Ids that exist, by the name of their place in a path: half of the calls go to them."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        agents = [
            client.post("/v1/agents/", json={"name": f"a{n}", "model": "openai/double"}).json()
            for n in range(2)
        ]
        first = agents[0]["id"]
        conversation = client.post(f"/v1/conversations/?agent_id={first}", json={}).json()["id"]
        client.post(f"/v1/agents/{first}/messages", json={"input": "hello"})
        ids = {
            "agent_id": [a["id"] for a in agents],
            "conversation_id": [conversation, "default"],
            "block_id": [b["id"] for b in agents[0]["blocks"]],
            "block_label": [b["label"] for b in agents[0]["blocks"]],
            "tool_id": [t["id"] for t in agents[0]["tools"]],
            "tool_name": [t["name"] for t in agents[0]["tools"]],
        }
        for name, path in {"run_id": "runs", "step_id": "steps", "message_id": "messages"}.items():
            ids[name] = [row["id"] for row in client.get(f"/v1/{path}/").json()][:3]
        for name, path, body in (
            ("archive_id", "archives", {"name": "a"}),
            ("folder_id", "folders", {"name": "f"}),
            ("source_id", "sources", {"name": "s"}),
        ):
            ids[name] = [client.post(f"/v1/{path}/", json=body).json()["id"]]
        return ids


def operations(url: str) -> Iterator[Any]:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.definition.raw.get("operationId") not in ENDLESS:
            yield operation


def test_every_operation(server: Serve, known: dict[str, list[str]]) -> None:
    chance, failures = random.Random(SEED), []
    # Deletions last: the others need what is there.
    ordered = sorted(operations(server.url), key=lambda op: op.method.lower() == "delete")
    assert len(ordered) > 150
    for operation in ordered:
        failures += tried(operation, known, chance)
    assert not failures, "\n\n".join(failures)
    assert httpx.get(f"{server.url}/v1/health/").status_code == 200


def is_unreadable_form(case: Any, response: Any) -> bool:
    """Tell whether daphne's HTTP layer itself has refused a malformed form; it does so without a body."""
    is_form = case.media_type == "multipart/form-data"
    return is_form and response.status_code == 400 and not response.content


def tried(operation: Any, known: dict[str, list[str]], chance: random.Random) -> list[str]:
    found: list[str] = []

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def call(case: Any) -> None:
        for name in case.path_parameters or {}:
            if known.get(name) and chance.random() < 0.7:
                case.path_parameters[name] = chance.choice(known[name])
        try:
            response = case.call(timeout=SECONDS)
            if is_unreadable_form(case, response):
                return
            case.validate_response(response, checks=[CHECKS.get_one(name) for name in CHECKED])
        except (Failure, FailureGroup) as exc:  # collected, so that one does not hide the others
            found.append(f"{operation.label}: {exc}"[:1500])

    call()
    return found[:2]
