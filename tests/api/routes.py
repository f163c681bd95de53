"""Every route of `/v1` with what it is called with. A route without an entry fails test_auth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from conversations.api.urls import urlpatterns

SOURCE = (
    'def roll(n: int) -> int:\n    """Roll.\n\n    Args:\n        n: sides\n    """\n    return n\n'
)
PERSON = {"identifier_key": "own", "name": "Own", "identity_type": "user"}
MESSAGE = {"messages": [{"role": "user", "content": "Hello"}]}


@dataclass(frozen=True)
class Route:
    """`path` has places for the ids of `World`; `stranger` is what Charlie gets: 404, "empty", "own".

    `expected` is what the owner gets.
    """

    method: str
    path: str
    body: Any = None
    stranger: Any = 404
    expected: int = 200
    is_endless: bool = False  # the answer goes on until the client leaves


@dataclass(frozen=True)
class World:
    """The ids of what Alice owns."""

    agent: str
    block: str
    free_block: str
    conversation: str
    run: str
    step: str
    message: str
    tool: str
    custom_tool: str
    archive: str
    passage: str
    job: str
    identity: str
    group: str
    folder: str
    file: str
    provider: str
    schedule: str
    mcp_server: str

    def fill(self, path: str) -> str:
        return path.format(**vars(self))


ROUTES: dict[str, list[Route]] = {
    r"^health/?$": [Route("GET", "health", stranger="own")],
    r"^ready/?$": [Route("GET", "ready", stranger="own")],
    r"^models/?$": [Route("GET", "models", stranger="own")],
    r"^models/embedding/?$": [Route("GET", "models/embedding", stranger="own")],
    r"^agents/?$": [
        Route("GET", "agents", stranger="empty"),
        Route("POST", "agents", {"name": "own", "model": "fake/fake-model"}, stranger="own"),
        Route("POST", "agents", {"name": "thief", "block_ids": ["{free_block}"]}),
    ],
    r"^agents/count/?$": [Route("GET", "agents/count", stranger="own")],
    r"^agents/(?P<agent_id>[^/]+)/core-memory/?$": [Route("GET", "agents/{agent}/core-memory")],
    r"^agents/(?P<agent_id>[^/]+)/core-memory/blocks/?$": [
        Route("GET", "agents/{agent}/core-memory/blocks")
    ],
    r"^agents/(?P<agent_id>[^/]+)/core-memory/blocks/attach/(?P<block_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/core-memory/blocks/attach/{free_block}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/core-memory/blocks/detach/(?P<block_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/core-memory/blocks/detach/{block}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/core-memory/blocks/(?P<label>.+?)/?$": [
        Route("GET", "agents/{agent}/core-memory/blocks/human"),
        Route("PATCH", "agents/{agent}/core-memory/blocks/human", {"value": "stolen"}),
    ],
    r"^agents/(?P<agent_id>[^/]+)/summarize/?$": [
        Route("POST", "agents/{agent}/summarize", {}, expected=400)
    ],
    r"^agents/(?P<agent_id>[^/]+)/recompile/?$": [Route("POST", "agents/{agent}/recompile")],
    r"^agents/(?P<agent_id>[^/]+)/system-prompt/recompile/?$": [
        Route("POST", "agents/{agent}/system-prompt/recompile?dry_run=true")
    ],
    r"^agents/(?P<agent_id>[^/]+)/context/?$": [
        Route("GET", "agents/{agent}/context"),
        Route("GET", "agents/{agent}/context?conversation_id={conversation}"),
    ],
    r"^conversations/(?P<conversation_id>[^/]+)/compact/?$": [
        Route("POST", "conversations/{conversation}/compact", {}),
        Route("POST", "conversations/default/compact", {"agent_id": "{agent}"}, expected=400),
    ],
    r"^conversations/(?P<conversation_id>[^/]+)/recompile/?$": [
        Route("POST", "conversations/{conversation}/recompile"),
        Route("POST", "conversations/default/recompile", {"agent_id": "{agent}"}),
    ],
    r"^agents/(?P<agent_id>[^/]+)/messages/?$": [
        Route("GET", "agents/{agent}/messages"),
        Route("POST", "agents/{agent}/messages", MESSAGE),
    ],
    r"^agents/(?P<agent_id>[^/]+)/messages/stream/?$": [
        Route("POST", "agents/{agent}/messages/stream", MESSAGE)
    ],
    r"^agents/(?P<agent_id>[^/]+)/messages/async/?$": [
        Route("POST", "agents/{agent}/messages/async", MESSAGE)
    ],
    r"^agents/(?P<agent_id>[^/]+)/?$": [
        Route("GET", "agents/{agent}"),
        Route("PATCH", "agents/{agent}", {"name": "stolen"}),
        Route("DELETE", "agents/{agent}"),
    ],
    r"^jobs/?$": [Route("GET", "jobs", stranger="empty")],
    r"^jobs/active/?$": [Route("GET", "jobs/active", stranger="empty")],
    r"^jobs/(?P<job_id>[^/]+)/cancel/?$": [Route("PATCH", "jobs/{job}/cancel")],
    r"^jobs/(?P<job_id>[^/]+)/?$": [Route("GET", "jobs/{job}"), Route("DELETE", "jobs/{job}")],
    r"^archives/?$": [
        Route("GET", "archives", stranger="empty"),
        Route("GET", "archives?agent_id={agent}"),
        Route("POST", "archives", {"name": "own"}, stranger="own"),
    ],
    r"^archives/(?P<archive_id>[^/]+)/agents/?$": [Route("GET", "archives/{archive}/agents")],
    r"^archives/(?P<archive_id>[^/]+)/passages/?$": [
        Route("POST", "archives/{archive}/passages", {"text": "A fact."})
    ],
    r"^archives/(?P<archive_id>[^/]+)/passages/batch/?$": [
        Route("POST", "archives/{archive}/passages/batch", {"passages": [{"text": "A fact."}]})
    ],
    r"^archives/(?P<archive_id>[^/]+)/passages/(?P<passage_id>[^/]+)/?$": [
        Route("DELETE", "archives/{archive}/passages/{passage}", expected=204)
    ],
    r"^archives/(?P<archive_id>[^/]+)/?$": [
        Route("GET", "archives/{archive}"),
        Route("PATCH", "archives/{archive}", {"name": "stolen"}),
        Route("DELETE", "archives/{archive}", expected=204),
    ],
    r"^agents/(?P<agent_id>[^/]+)/archives/attach/(?P<archive_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/archives/attach/{archive}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/archives/detach/(?P<archive_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/archives/detach/{archive}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/archival-memory/?$": [
        Route("GET", "agents/{agent}/archival-memory"),
        Route("POST", "agents/{agent}/archival-memory", {"text": "A fact."}),
    ],
    r"^agents/(?P<agent_id>[^/]+)/archival-memory/search/?$": [
        Route("GET", "agents/{agent}/archival-memory/search?query=fact")
    ],
    r"^agents/(?P<agent_id>[^/]+)/archival-memory/(?P<memory_id>[^/]+)/?$": [
        Route("DELETE", "agents/{agent}/archival-memory/{passage}", expected=404)
    ],
    r"^messages/search/?$": [
        Route("POST", "messages/search", {"query": "Hello"}, stranger="empty"),
        Route("POST", "messages/search", {"query": "Hello", "conversation_id": "{conversation}"}),
        Route("POST", "messages/search", {"query": "Hello", "agent_id": "{agent}"}),
    ],
    r"^agents/messages/search/?$": [
        Route("POST", "agents/messages/search", {"query": "Hello"}, stranger="empty"),
        Route("POST", "agents/messages/search", {"agent_id": "{agent}"}),
    ],
    r"^passages/search/?$": [
        Route("POST", "passages/search", {"query": "fact"}, stranger="empty"),
        Route("POST", "passages/search", {"query": "fact", "agent_id": "{agent}"}),
        Route("POST", "passages/search", {"query": "fact", "archive_id": "{archive}"}),
    ],
    r"^blocks/?$": [
        Route("GET", "blocks", stranger="own"),
        Route("POST", "blocks", {"label": "own", "value": "x"}, stranger="own"),
    ],
    r"^blocks/count/?$": [Route("GET", "blocks/count", stranger="own")],
    r"^blocks/(?P<block_id>[^/]+)/agents/?$": [Route("GET", "blocks/{block}/agents")],
    r"^blocks/(?P<block_id>[^/]+)/?$": [
        Route("GET", "blocks/{block}"),
        Route("PATCH", "blocks/{block}", {"value": "stolen"}),
        Route("DELETE", "blocks/{block}"),
    ],
    r"^conversations/?$": [
        Route("GET", "conversations", stranger="empty"),
        Route("GET", "conversations?agent_id={agent}"),
        Route("POST", "conversations?agent_id={agent}", {}),
        Route("POST", "conversations", {"agent_id": "{agent}"}),
    ],
    r"^conversations/(?P<conversation_id>[^/]+)/messages/?$": [
        Route("GET", "conversations/{conversation}/messages"),
        Route("GET", "conversations/default/messages?agent_id={agent}"),
        Route("GET", "conversations/{agent}/messages"),
        Route("POST", "conversations/{conversation}/messages", MESSAGE),
        Route("POST", "conversations/default/messages", {**MESSAGE, "agent_id": "{agent}"}),
    ],
    r"^conversations/(?P<conversation_id>[^/]+)/stream/?$": [
        Route("POST", "conversations/{conversation}/stream", {"run_id": "{run}"}),
        Route("POST", "conversations/{conversation}/stream", MESSAGE),
    ],
    r"^conversations/(?P<conversation_id>[^/]+)/events/?$": [
        Route("GET", "conversations/{conversation}/events", is_endless=True),
        Route("GET", "conversations/default/events?agent_id={agent}", is_endless=True),
    ],
    r"^conversations/(?P<conversation_id>[^/]+)/?$": [
        Route("GET", "conversations/{conversation}"),
        Route("PATCH", "conversations/{conversation}", {"summary": "stolen"}),
        Route("DELETE", "conversations/{conversation}"),
    ],
    r"^runs/?$": [
        Route("GET", "runs", stranger="empty"),
        Route("GET", "runs?agent_id={agent}&conversation_id={conversation}", stranger="empty"),
    ],
    r"^runs/(?P<run_id>[^/]+)/messages/?$": [Route("GET", "runs/{run}/messages")],
    r"^runs/(?P<run_id>[^/]+)/steps/?$": [Route("GET", "runs/{run}/steps")],
    r"^runs/(?P<run_id>[^/]+)/stream/?$": [Route("POST", "runs/{run}/stream", {})],
    r"^runs/(?P<run_id>[^/]+)/usage/?$": [Route("GET", "runs/{run}/usage")],
    r"^runs/(?P<run_id>[^/]+)/metrics/?$": [Route("GET", "runs/{run}/metrics")],
    r"^runs/(?P<run_id>[^/]+)/trace/?$": [Route("GET", "runs/{run}/trace")],
    r"^runs/active/?$": [Route("GET", "runs/active", stranger="empty")],
    r"^runs/(?P<run_id>[^/]+)/?$": [
        Route("GET", "runs/{run}"),
        Route("DELETE", "runs/{run}"),
    ],
    r"^agents/(?P<agent_id>[^/]+)/messages/cancel/?$": [
        Route("POST", "agents/{agent}/messages/cancel", {})
    ],
    r"^agents/(?P<agent_id>[^/]+)/tools/approval/(?P<tool_name>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/tools/approval/memory_insert", {"requires_approval": True})
    ],
    r"^agents/(?P<agent_id>[^/]+)/tools/?$": [Route("GET", "agents/{agent}/tools")],
    r"^agents/(?P<agent_id>[^/]+)/tools/attach/(?P<tool_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/tools/attach/{custom_tool}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/tools/detach/(?P<tool_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/tools/detach/{custom_tool}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/tools/(?P<tool_name>[^/]+)/run/?$": [
        Route("POST", "agents/{agent}/tools/conversation_search/run", {"args": {"query": "Hello"}})
    ],
    r"^agents/(?P<agent_id>[^/]+)/approvals/?$": [Route("GET", "agents/{agent}/approvals")],
    r"^agents/(?P<agent_id>[^/]+)/approvals/(?P<tool_name>[^/]+)/?$": [
        Route("DELETE", "agents/{agent}/approvals/memory_insert", expected=404)
    ],
    r"^conversations/(?P<conversation_id>[^/]+)/cancel/?$": [
        Route("POST", "conversations/{conversation}/cancel", expected=409)
    ],
    r"^steps/?$": [Route("GET", "steps", stranger="empty")],
    r"^steps/(?P<step_id>[^/]+)/metrics/?$": [Route("GET", "steps/{step}/metrics")],
    r"^steps/(?P<step_id>[^/]+)/messages/?$": [Route("GET", "steps/{step}/messages")],
    r"^steps/(?P<step_id>[^/]+)/feedback/?$": [
        Route("PATCH", "steps/{step}/feedback", {"feedback": "positive"})
    ],
    r"^steps/(?P<step_id>[^/]+)/trace/?$": [Route("GET", "steps/{step}/trace")],
    r"^steps/(?P<step_id>[^/]+)/?$": [Route("GET", "steps/{step}")],
    r"^agents/import/?$": [Route("POST", "agents/import", {}, stranger=400, expected=400)],
    r"^agents/(?P<agent_id>[^/]+)/export/?$": [
        Route("GET", "agents/{agent}/export"),
        Route("POST", "agents/{agent}/export", {}),
    ],
    r"^agents/(?P<agent_id>[^/]+)/identities/attach/(?P<identity_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/identities/attach/{identity}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/identities/detach/(?P<identity_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/identities/detach/{identity}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/groups/?$": [Route("GET", "agents/{agent}/groups")],
    r"^blocks/(?P<block_id>[^/]+)/identities/attach/(?P<identity_id>[^/]+)/?$": [
        Route("PATCH", "blocks/{block}/identities/attach/{identity}")
    ],
    r"^blocks/(?P<block_id>[^/]+)/identities/detach/(?P<identity_id>[^/]+)/?$": [
        Route("PATCH", "blocks/{block}/identities/detach/{identity}")
    ],
    r"^identities/?$": [
        Route("GET", "identities", stranger="empty"),
        Route("POST", "identities", {**PERSON, "agent_ids": ["{agent}"]}),
        Route("PUT", "identities", {**PERSON, "block_ids": ["{block}"]}),
    ],
    r"^identities/count/?$": [Route("GET", "identities/count", stranger="empty")],
    r"^identities/(?P<identity_id>[^/]+)/properties/?$": [
        Route("PUT", "identities/{identity}/properties", [])
    ],
    r"^identities/(?P<identity_id>[^/]+)/agents/?$": [Route("GET", "identities/{identity}/agents")],
    r"^identities/(?P<identity_id>[^/]+)/blocks/?$": [Route("GET", "identities/{identity}/blocks")],
    r"^identities/(?P<identity_id>[^/]+)/?$": [
        Route("GET", "identities/{identity}"),
        Route("PATCH", "identities/{identity}", {"name": "stolen"}),
        Route("DELETE", "identities/{identity}"),
    ],
    r"^groups/?$": [
        Route("GET", "groups", stranger="empty"),
        Route("POST", "groups", {"agent_ids": ["{agent}"], "description": "d"}),
    ],
    r"^groups/count/?$": [Route("GET", "groups/count", stranger="empty")],
    r"^groups/(?P<group_id>[^/]+)/blocks/attach/(?P<block_id>[^/]+)/?$": [
        Route("PATCH", "groups/{group}/blocks/attach/{block}")
    ],
    r"^groups/(?P<group_id>[^/]+)/blocks/detach/(?P<block_id>[^/]+)/?$": [
        Route("PATCH", "groups/{group}/blocks/detach/{block}")
    ],
    r"^groups/(?P<group_id>[^/]+)/?$": [
        Route("GET", "groups/{group}"),
        Route("PATCH", "groups/{group}", {"description": "stolen"}),
        Route("DELETE", "groups/{group}"),
    ],
    r"^tags/?$": [Route("GET", "tags", stranger="empty")],
    r"^messages/?$": [
        Route("GET", "messages", stranger="own"),
        Route("GET", "messages?conversation_id={conversation}"),
    ],
    r"^messages/(?P<message_id>[^/]+)/?$": [Route("GET", "messages/{message}")],
    r"^agents/(?P<agent_id>[^/]+)/messages/(?P<message_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/messages/{message}", {"content": "x"}, expected=405)
    ],
    r"^agents/(?P<agent_id>[^/]+)/reset-messages/?$": [
        Route("PATCH", "agents/{agent}/reset-messages", {})
    ],
    r"^conversations/(?P<conversation_id>[^/]+)/fork/?$": [
        Route("POST", "conversations/{conversation}/fork"),
        Route("POST", "conversations/{conversation}/fork?message_id={message}"),
        Route("POST", "conversations/default/fork?agent_id={agent}"),
    ],
    r"^tools/?$": [
        Route("GET", "tools", stranger="own"),
        Route("POST", "tools", {"source_code": SOURCE}, stranger="own"),
        Route("PUT", "tools", {"source_code": SOURCE}, stranger="own"),
    ],
    r"^tools/add-base-tools/?$": [Route("POST", "tools/add-base-tools", stranger="own")],
    r"^tools/count/?$": [Route("GET", "tools/count", stranger="own")],
    r"^tools/search/?$": [Route("POST", "tools/search", {"query": "memory"}, stranger="own")],
    r"^tools/run/?$": [
        Route("POST", "tools/run", {"source_code": SOURCE, "args": {}}, stranger=400, expected=400)
    ],
    r"^tools/generate-schema/?$": [
        Route("POST", "tools/generate-schema", {"code": SOURCE}, stranger="own")
    ],
    r"^tools/(?P<tool_id>[^/]+)/?$": [
        Route("GET", "tools/{custom_tool}"),
        Route("PATCH", "tools/{custom_tool}", {"tags": ["mine"]}),
        Route("DELETE", "tools/{custom_tool}"),
    ],
}

_FOLDERS: dict[str, list[Route]] = {
    r"^folders/?$": [
        Route("GET", "folders", stranger="empty"),
        Route("POST", "folders", {"name": "own"}, stranger="own"),
    ],
    r"^folders/count/?$": [Route("GET", "folders/count", stranger="own")],
    r"^folders/metadata/?$": [Route("GET", "folders/metadata", stranger="own")],
    r"^folders/name/(?P<folder_name>.+?)/?$": [Route("GET", "folders/name/manuals")],
    r"^folders/(?P<folder_id>[^/]+)/agents/?$": [Route("GET", "folders/{folder}/agents")],
    r"^folders/(?P<folder_id>[^/]+)/files/?$": [Route("GET", "folders/{folder}/files")],
    r"^folders/(?P<folder_id>[^/]+)/files/(?P<file_id>[^/]+)/?$": [
        Route("GET", "folders/{folder}/files/{file}")
    ],
    r"^folders/(?P<folder_id>[^/]+)/passages/?$": [Route("GET", "folders/{folder}/passages")],
    r"^folders/(?P<folder_id>[^/]+)/upload/?$": [
        Route("POST", "folders/{folder}/upload", expected=422)
    ],
    r"^folders/(?P<folder_id>[^/]+)/?$": [
        Route("GET", "folders/{folder}"),
        Route("PATCH", "folders/{folder}", {"description": "stolen"}),
        Route("DELETE", "folders/{folder}"),
    ],
    r"^folders/(?P<folder_id>[^/]+)/(?P<file_id>[^/]+)/?$": [
        Route("DELETE", "folders/{folder}/{file}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/folders/?$": [Route("GET", "agents/{agent}/folders")],
    r"^agents/(?P<agent_id>[^/]+)/folders/attach/(?P<folder_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/folders/attach/{folder}")
    ],
    r"^agents/(?P<agent_id>[^/]+)/folders/detach/(?P<folder_id>[^/]+)/?$": [
        Route("PATCH", "agents/{agent}/folders/detach/{folder}")
    ],
}
ROUTES |= _FOLDERS
_MCP = {"server_name": "own", "config": {"server_url": "https://mcp.example/"}}
_OLD_MCP = {"server_name": "old", "server_url": "https://mcp.example/"}
_BY_ID, _BY_NAME = (
    r"^mcp-servers/(?P<mcp_server_id>[^/]+)",
    r"^tools/mcp/servers/(?P<mcp_server_name>[^/]+)",
)
_TOOL_THERE = "mcp-servers/{mcp_server}/tools/{tool}"
ROUTES |= {
    r"^mcp-servers/?$": [
        Route("GET", "mcp-servers", stranger="empty"),
        Route("POST", "mcp-servers", _MCP, stranger="own"),
    ],
    r"^mcp-servers/connect/(?P<mcp_server_id>[^/]+)/?$": [
        Route("GET", "mcp-servers/connect/{mcp_server}", expected=404)
    ],
    rf"{_BY_ID}/?$": [
        Route("GET", "mcp-servers/{mcp_server}"),
        Route("PATCH", "mcp-servers/{mcp_server}", {"config": {"auth_token": "stolen"}}),
        Route("DELETE", "mcp-servers/{mcp_server}", expected=204),
    ],
    rf"{_BY_ID}/refresh/?$": [Route("PATCH", "mcp-servers/{mcp_server}/refresh", expected=404)],
    rf"{_BY_ID}/tools/?$": [Route("GET", "mcp-servers/{mcp_server}/tools")],
    rf"{_BY_ID}/tools/(?P<tool_id>[^/]+)/?$": [Route("GET", _TOOL_THERE, expected=404)],
    rf"{_BY_ID}/tools/(?P<tool_id>[^/]+)/run/?$": [
        Route("POST", f"{_TOOL_THERE}/run", expected=404)
    ],
    r"^tools/mcp/servers/?$": [
        Route("GET", "tools/mcp/servers", stranger="own"),
        Route("PUT", "tools/mcp/servers", _OLD_MCP, stranger="own"),
    ],
    r"^tools/mcp/servers/connect/?$": [
        Route("POST", "tools/mcp/servers/connect", _OLD_MCP, expected=404)
    ],
    r"^tools/mcp/servers/test/?$": [
        Route("POST", "tools/mcp/servers/test", _OLD_MCP, expected=404)
    ],
    rf"{_BY_NAME}/?$": [
        Route("PATCH", "tools/mcp/servers/mine", {"token": "stolen"}),
        Route("DELETE", "tools/mcp/servers/mine"),
    ],
    rf"{_BY_NAME}/tools/?$": [Route("GET", "tools/mcp/servers/mine/tools")],
    rf"{_BY_NAME}/resync/?$": [Route("POST", "tools/mcp/servers/mine/resync", expected=404)],
    rf"{_BY_NAME}/(?P<mcp_tool_name>[^/]+)/?$": [
        Route("POST", "tools/mcp/servers/mine/roll", expected=404)
    ],
    rf"{_BY_NAME}/tools/(?P<mcp_tool_name>[^/]+)/execute/?$": [
        Route("POST", "tools/mcp/servers/mine/tools/roll/execute", expected=404)
    ],
}
ROUTES |= {
    r"^chat/completions/?$": [
        Route("POST", "chat/completions", {"model": "{agent}", "messages": MESSAGE["messages"]})
    ],
    r"^voice-beta/(?P<agent_id>[^/]+)/chat/completions/?$": [
        Route("POST", "voice-beta/{agent}/chat/completions", expected=410)
    ],
}
_LATER = {"messages": MESSAGE["messages"], "schedule": {"scheduled_at": 4_000_000_000_000}}
ROUTES |= {
    r"^agents/(?P<agent_id>[^/]+)/schedule/?$": [
        Route("GET", "agents/{agent}/schedule"),
        Route("POST", "agents/{agent}/schedule", _LATER),
    ],
    r"^agents/(?P<agent_id>[^/]+)/schedule/(?P<scheduled_message_id>[^/]+)/?$": [
        Route("GET", "agents/{agent}/schedule/{schedule}"),
        Route("DELETE", "agents/{agent}/schedule/{schedule}"),
    ],
}
_PROVIDER = {
    "name": "own",
    "provider_type": "openai",
    "api_key": "k",
    "base_url": "http://127.0.0.1:9",
}
ROUTES |= {
    r"^providers/?$": [
        Route("GET", "providers", stranger="empty"),
        Route("POST", "providers", {**_PROVIDER, "name": "own"}, stranger="own"),
    ],
    r"^providers/check/?$": [
        Route("POST", "providers/check", _PROVIDER, expected=400, stranger=400)
    ],
    r"^providers/(?P<provider_id>[^/]+)/check/?$": [
        Route("POST", "providers/{provider}/check", expected=400)
    ],
    r"^providers/(?P<provider_id>[^/]+)/refresh/?$": [
        Route("PATCH", "providers/{provider}/refresh", expected=400)
    ],
    r"^providers/(?P<provider_id>[^/]+)/?$": [
        Route("GET", "providers/{provider}"),
        Route("PATCH", "providers/{provider}", {"api_key": "stolen"}),
        Route("DELETE", "providers/{provider}"),
    ],
}
ROUTES |= {
    pattern.replace("folders", "sources"): [
        replace(
            route,
            path=route.path.replace("folders", "sources"),
            stranger="own" if route.path == "folders" else route.stranger,
            body=route.body and {"name": "another"} if route.method == "POST" else route.body,
        )
        for route in routes
    ]
    for pattern, routes in _FOLDERS.items()
}
ROUTES |= {
    r"^agents/(?P<agent_id>[^/]+)/files/?$": [Route("GET", "agents/{agent}/files")],
    r"^agents/(?P<agent_id>[^/]+)/files/close-all/?$": [
        Route("PATCH", "agents/{agent}/files/close-all")
    ],
    r"^agents/(?P<agent_id>[^/]+)/files/(?P<file_id>[^/]+)/open/?$": [
        Route("PATCH", "agents/{agent}/files/{file}/open", expected=404)
    ],
    r"^agents/(?P<agent_id>[^/]+)/files/(?P<file_id>[^/]+)/close/?$": [
        Route("PATCH", "agents/{agent}/files/{file}/close", expected=404)
    ],
}


def patterns() -> dict[str, Any]:
    """Return {pattern: view class} of all routes."""
    return {str(p.pattern): p.callback.view_class for p in urlpatterns}


def methods(view: Any) -> set[str]:
    return {m.upper() for m in ("get", "post", "put", "patch", "delete") if hasattr(view, m)}


def all_routes() -> list[Route]:
    """Return the entries, those that delete last."""
    found = [route for routes in ROUTES.values() for route in routes]
    return sorted(found, key=lambda route: route.method == "DELETE")


def filled(world: World, body: Any) -> Any:
    """Put ids into a body."""
    if isinstance(body, str):
        return world.fill(body)
    if isinstance(body, list):
        return [filled(world, item) for item in body]
    if isinstance(body, dict):
        return {key: filled(world, item) for key, item in body.items()}
    return body
