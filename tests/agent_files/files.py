"""Agent files as they are found: built by hand in the shapes of their time."""

from __future__ import annotations

import json
from typing import Any

from tests.conftest import Answer, Api

BOUNDARY = "agent-file-boundary"
SCHEMA = {
    "name": "roll",
    "description": "Roll a die.",
    "parameters": {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": []},
}


def upload(
    api: Api, document: Any, /, headers: dict[str, str] | None = None, **form: Any
) -> Answer:
    """Post a file as the SDKs do."""
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in form.items()
    ]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.af"\r\n'
    parts.append(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + raw + b"\r\n")
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return api.request(
        "POST",
        "/v1/agents/import",
        body=body,
        headers={"content-type": kind, **(headers or {})},
    )


def message(number: int, role: str, content: Any, **fields: Any) -> dict[str, Any]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content, "signature": None}]
    return {
        "type": "message",
        "role": role,
        "content": content,
        "id": f"message-{number}",
        "agent_id": "agent-0",
        "model": "gpt-4o-mini" if role == "assistant" else None,
        "tool_calls": None,
        "tool_call_id": None,
        "tool_returns": [],
        "created_at": f"2025-10-31T22:56:{number:02d}.459100+00:00",
        **fields,
    }


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def agent(number: int = 0, **fields: Any) -> dict[str, Any]:
    """An agent of the present form."""
    return {
        "id": f"agent-{number}",
        "name": "Sam",
        "agent_type": "letta_v1_agent",
        "system": "You are Sam.",
        "memory_blocks": [],
        "tools": [],
        "tool_ids": ["tool-0", "tool-1"],
        "block_ids": ["block-0"],
        "source_ids": [],
        "tool_rules": [],
        "tags": ["b", "a"],
        "description": "A friend",
        "metadata": {"k": "v"},
        "llm_config": {
            "model": "fake-model",
            "handle": "fake/fake-model",
            "model_endpoint_type": "openai",
            "context_window": 16000,
            "temperature": 0.7,
        },
        "embedding_config": None,
        "enable_sleeptime": False,
        "tool_exec_environment_variables": {},
        "secrets": None,
        "messages": [
            message(0, "system", "compiled prompt"),
            message(1, "user", "Old question"),
            message(2, "assistant", "Old answer"),
            message(3, "user", "Question", otid="36e1824e-2bf1-41b7-9ad1-864cd5062158"),
            message(
                4,
                "assistant",
                [
                    {"type": "reasoning", "reasoning": "I think.", "is_native": True},
                    {"type": "text", "text": "Rolling."},
                ],
                tool_calls=[call("call_1", "roll", sides=6)],
                otid="08a88c8e-bce0-477b-ae03-88f518dbb5d0",
            ),
            message(
                5,
                "tool",
                "ignored",
                tool_call_id="call_1",
                tool_returns=[
                    {
                        "tool_call_id": "call_1",
                        "status": "success",
                        "func_response": "4",
                        "stdout": ["x"],
                    }
                ],
            ),
            message(6, "assistant", "It is 4."),
        ],
        "in_context_message_ids": ["message-0", "message-3", "message-4", "message-5", "message-6"],
        "files_agents": [],
        "group_ids": [],
        **fields,
    }


def document(*agents: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The form with several entities."""
    return {
        "agents": list(agents) or [agent()],
        "groups": [],
        "blocks": [
            {
                "id": "block-0",
                "label": "human",
                "value": "Name: Chad",
                "limit": 2000,
                "metadata": {},
            },
            {
                "id": "block-1",
                "label": "project",
                "value": "Apollo",
                "limit": 50,
                "read_only": True,
            },
        ],
        "files": [],
        "sources": [],
        "tools": [
            {
                "id": "tool-0",
                "tool_type": "letta_core",
                "name": "conversation_search",
                "source_code": None,
                "json_schema": {"name": "conversation_search", "parameters": {}},
            },
            {
                "id": "tool-1",
                "tool_type": "custom",
                "name": "roll",
                "source_type": "python",
                "source_code": "def roll(sides: int = 6):\n    return sides\n",
                "json_schema": SCHEMA,
                "tags": ["fun"],
            },
        ],
        "mcp_servers": [],
        "metadata": {},
        "created_at": "2025-10-31T22:57:00+00:00",
        **fields,
    }


def single_agent() -> dict[str, Any]:
    """The form of 2025 with one agent, whose tools and blocks are inside."""

    def said(role: str, content: str, **fields: Any) -> dict[str, Any]:
        return {
            "created_at": "2025-04-01T10:00:00.000000",
            "updated_at": "2025-04-01T10:00:00.000000",
            "group_id": None,
            "model": "gpt-4",
            "name": None,
            "role": role,
            "content": [{"type": "text", "text": content}],
            "tool_call_id": None,
            "tool_calls": [],
            "tool_returns": [],
            **fields,
        }

    packed = {"type": "user_message", "message": "Hi Sam", "time": "2025-04-01"}
    returned = {"status": "OK", "message": "None", "time": "2025-04-01"}
    failed = {"status": "Failed", "message": "no such word", "time": "2025-04-01"}
    return {
        "agent_type": "memgpt_agent",
        "core_memory": [
            {
                "created_at": "2025-04-01",
                "description": None,
                "is_template": False,
                "label": "persona",
                "limit": 5,
                "metadata_": {"m": 1},
                "template_name": None,
                "updated_at": "2025-04-01",
                "value": "I am Sam.",
            }
        ],
        "created_at": "2025-04-01T10:00:00",
        "description": None,
        "embedding_config": {"embedding_model": "x", "embedding_dim": 10},
        "llm_config": {"model": "gpt-4", "model_endpoint_type": "openai", "context_window": 8192},
        "message_buffer_autoclear": False,
        "in_context_message_indices": [0, 1, 2, 3, 4, 5],
        "messages": [
            said("system", "compiled"),
            said("user", json.dumps(packed)),
            said(
                "assistant",
                "They greet me.",
                tool_calls=[call("call_a", "send_message", message="Hello Chad!")],
            ),
            said("tool", json.dumps(returned), tool_call_id="call_a", name="send_message"),
            said(
                "assistant",
                "I look it up.",
                tool_calls=[call("call_b", "archival_memory_search", query="word")],
            ),
            said("tool", json.dumps(failed), tool_call_id="call_b"),
        ],
        "metadata_": {"old": True},
        "multi_agent_group": None,
        "name": "old_sam",
        "system": "You are Sam.",
        "tags": [{"tag": "t1"}, {"tag": "t2"}],
        "tool_exec_environment_variables": [{"key": "TOKEN", "value": "", "description": None}],
        "tool_rules": [
            {"tool_name": "send_message", "type": "exit_loop"},
            {"tool_name": "x", "type": "unheard_of"},
        ],
        "tools": [
            {
                "name": "send_message",
                "tool_type": "letta_core",
                "json_schema": {"name": "send_message", "parameters": {}},
                "source_code": None,
                "tags": [],
            },
            {
                "name": "roll",
                "tool_type": "custom",
                "json_schema": SCHEMA,
                "source_code": "def roll(sides: int = 6):\n    return sides\n",
                "tags": [],
            },
        ],
        "updated_at": "2025-04-01T10:00:00",
        "version": "0.6.50",
    }
