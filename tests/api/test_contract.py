"""The contract's routes, queries and bodies against what `/openapi.json` offers.

`contract.json` holds the old server's operations: method and path, names of the query, names of the body, SDK method.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

from conversations.api.openapi.completion import shape

CONTRACT: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "contract.json").read_text("utf-8")
)

# Beginning of the path: why it is not offered (docs/sdk.md says it to people).
NOT_OFFERED = {
    "/v1/auth": "there are keys instead of one password",
    "/v1/embeddings/total_storage_size": "told per archive",
    "/v1/messages/batches": "no provider here takes batches",
    "/v1/sandbox-config": "there is one sandbox, set up by the operator",
    "/v1/telemetry": "the same as steps/{id}/trace",
}
NOT_OFFERED_ROUTES = {
    "GET /v1/tools/mcp/oauth/callback": "belongs to connections, which are not made yet",
    "POST /v1/agents/{agent_id}/generate": "a bare model call that no client makes",
    "POST /v1/agents/{agent_id}/messages/preview-raw-payload": "GET context tells what fills the window",
    "POST /v1/conversations/{conversation_id}/messages/preview-raw-payload": "as above",
    "PATCH /v1/steps/{step_id}/transaction/{transaction_id}": "there is no billing",
    "POST /v1/tools/generate-tool": "needs a hosted model of the old server's makers",
    "GET /v1/groups/{group_id}/messages": "a group here is what an imported file says; turns are agents'",
    "PATCH /v1/groups/{group_id}/messages/{message_id}": "as above",
    "PATCH /v1/groups/{group_id}/reset-messages": "as above",
}
# Names that are accepted and change nothing.
IGNORED = {
    "order_by": "created_at is all there is to order by in these lists",
    "actor_id": "the key says who calls",
    "assistant_message_tool_name": "answers are texts, not calls of send_message",
    "assistant_message_tool_kwarg": "answers are texts, not calls of send_message",
    "use_assistant_message": "answers are texts, not calls of send_message",
    "enable_thinking": "deprecated; model_settings say it",
    "reasoning": "deprecated; model_settings say it",
    "enable_reasoner": "deprecated; model_settings say it",
    "max_reasoning_tokens": "deprecated; model_settings say it",
    "return_logprobs": "for training runs of the old server",
    "top_logprobs": "for training runs of the old server",
    "return_token_ids": "for training runs of the old server",
    "poll_interval": "followers are woken, nothing is polled",
    "batch_size": "followers are woken, nothing is polled",
    "group_id": "turns are agents', not groups'",
    "include_err": "failed steps leave no messages",
    "project_id": "there are no projects",
    "template_id": "there are no hosted templates",
    "include_relationships": "deprecated; include says it",
    "template": "there are no hosted templates",
    "from_template": "there are no hosted templates",
    "project": "there are no projects",
    "memory_variables": "for hosted templates",
    "template_name": "fixed when a block is created",
    "is_template": "fixed when a block is created",
    "base_template_id": "fixed when a block is created",
    "deployment_id": "fixed when a block is created",
    "entity_id": "fixed when a block is created",
    "preserve_on_migration": "fixed when a block is created",
    "embedding_chunk_size": "archives decide how they embed",
    "include_base_tool_rules": "the loop ends by itself; no rules are needed for that",
    "include_default_source": "no folder is made unasked",
    "message_ids": "the window is moved by the server alone",
    "legacy_spec": "export answers with the current form",
    "spec": "export answers with the current form",
    "embedding_config": "how files are embedded is a setting of their owner's archive",
    "frequency_penalty": "the agent's settings count",
    "presence_penalty": "the agent's settings count",
    "temperature": "the agent's settings count",
    "top_p": "the agent's settings count",
    "max_tokens": "the agent's settings count",
    "stop": "the agent's settings count",
    "user": "the key says who calls",
    "metadata_": "an old name of metadata",
    **dict.fromkeys(
        ("frequency_penalty", "max_tokens", "presence_penalty", "stop", "temperature", "top_p"),
        "how a model is asked is the agent's business, not an OpenAI client's",
    ),
    "check_status_updates": "the status is always the present one",
}
NOT_CONNECTED = "MCP servers are registered; connections to them are not made yet"
IGNORED_HERE = {
    ("POST /v1/mcp-servers/{mcp_server_id}/tools/{tool_id}/run", "args"): NOT_CONNECTED,
    (
        "POST /v1/tools/mcp/servers/{mcp_server_name}/tools/{tool_name}/execute",
        "args",
    ): NOT_CONNECTED,
    ("PATCH /v1/mcp-servers/{mcp_server_id}/refresh", "agent_id"): NOT_CONNECTED,
    ("POST /v1/tools/mcp/servers/{mcp_server_name}/resync", "agent_id"): NOT_CONNECTED,
}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found


@pytest.fixture(scope="module")
def offered(described: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        shape(method, path): operation
        for path, found in described["paths"].items()
        for method, operation in found.items()
    }


def reason_for_absence(operation: str) -> str | None:
    path = operation.split(" ")[1]
    return NOT_OFFERED_ROUTES.get(operation) or next(
        (why for start, why in NOT_OFFERED.items() if path.startswith(start)), None
    )


def test_every_route_of_the_contract_is_offered_or_has_a_reason(offered: dict[str, Any]) -> None:
    for known in CONTRACT:
        operation = known["operation"]
        is_offered = shape(*operation.split(" ")) in offered
        assert is_offered == (reason_for_absence(operation) is None), operation


def test_every_name_of_a_query_or_body_is_known_or_has_a_reason(
    offered: dict[str, Any], described: dict[str, Any]
) -> None:
    unused, wrong = set(IGNORED), []
    for known in CONTRACT:
        operation = offered.get(shape(*known["operation"].split(" ")))
        if operation is None:
            continue
        query = {p["name"] for p in operation.get("parameters", []) if p["in"] == "query"}
        missing = {*known.get("query", ())} - query
        missing |= {*known.get("body", ())} - body_names(operation, described)
        unused -= missing
        asked = {(known["operation"], name) for name in missing - set(IGNORED)}
        wrong += sorted(asked - set(IGNORED_HERE))
    assert not wrong, "\n".join(map(str, wrong))
    assert not unused, "these have no use any more"


def body_names(operation: dict[str, Any], described: dict[str, Any]) -> set[str]:
    contents = operation.get("requestBody", {}).get("content", {}).values()
    todo, names = [content["schema"] for content in contents], set()
    while todo:
        schema = todo.pop()
        if "$ref" in schema:
            schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        names |= set(schema.get("properties", {}))
        for key in ("anyOf", "oneOf", "allOf"):
            todo += schema.get(key, [])
    return names
