"""ContextWindowOverview: what fills the window of a conversation, in tokens (contract §2, golden 51)."""

from __future__ import annotations

import uuid
from typing import Any

from agents.archive_selectors import count_passages
from agents.files.directories import directories_text
from agents.models import Agent, Tool
from agents.providers import registry
from agents.providers.capabilities import fit
from agents.selectors import attached_tools
from conversations.models import Conversation, Message
from conversations.services.prompt import system_text
from conversations.services.tokens import Calibration, estimate_text_tokens, estimate_tokens
from conversations.services.window import load_window
from conversations.wire.states import moment, user_id
from souveraine import ids

METADATA = "\n\n<memory_metadata>"


def context_overview(agent: Agent, conversation: Conversation) -> dict[str, Any]:
    """Return ContextWindowOverview. Tokens are estimates, corrected by what the provider has counted."""
    handle = conversation.model or agent.model
    tools = attached_tools(agent)
    fitted = fit(
        registry.known_model(handle, agent.owner_id),
        handle=handle,
        context_window=conversation.context_window or agent.context_window,
        has_tools=bool(tools),
        is_agents_own=handle == agent.model or conversation.context_window is not None,
    )
    calibration = Calibration.load(conversation.calibration, handle)
    system = system_text(conversation)
    core, _, facts = system.removeprefix(agent.system).rpartition(METADATA)
    directories = directories_text(agent)
    core = core.replace(directories, "") if directories else core
    core, facts = core.strip(), f"{METADATA}{facts}".strip()
    functions = [_function(tool) for tool in tools] if fitted.uses_tools else []
    window = load_window(conversation)
    summary = window.summary.text if window.summary else None
    tokens = {
        "system": calibration.tokens(estimate_text_tokens(agent.system)),
        "core_memory": calibration.tokens(estimate_text_tokens(core)),
        "external_memory_summary": calibration.tokens(estimate_text_tokens(facts)),
        "directories": calibration.tokens(estimate_text_tokens(directories)) if directories else 0,
        "functions_definitions": calibration.tokens(estimate_text_tokens(functions))
        if functions
        else 0,
        "summary_memory": calibration.tokens(estimate_text_tokens(summary or "")),
        "messages": calibration.tokens(sum(estimate_tokens(row) for row in window.rows)),
    }
    first = Message.objects.filter(conversation=conversation, role=Message.Role.SYSTEM)
    rows = [*first.order_by("sequence")[:1], *window.messages]
    return {
        "context_window_size_max": calibration.window(fitted.context_window),
        "context_window_size_current": sum(tokens.values()),
        "num_messages": len(rows),
        "num_archival_memory": count_passages(agent),
        "num_recall_memory": conversation.last_sequence,
        "num_tokens_external_memory_summary": tokens["external_memory_summary"],
        "external_memory_summary": facts,
        "num_tokens_system": tokens["system"],
        "system_prompt": agent.system,
        "num_tokens_core_memory": tokens["core_memory"],
        "core_memory": core,
        "num_tokens_memory_filesystem": 0,
        "memory_filesystem": None,
        "num_tokens_tool_usage_rules": 0,
        "tool_usage_rules": None,
        "num_tokens_directories": tokens["directories"],
        "directories": directories or None,
        "num_tokens_summary_memory": tokens["summary_memory"],
        "summary_memory": summary,
        "num_tokens_functions_definitions": tokens["functions_definitions"],
        "functions_definitions": functions,
        "num_tokens_messages": tokens["messages"],
        "messages": [stored_message(row, agent.owner_id) for row in rows],
    }


def _function(tool: Tool) -> dict[str, Any]:
    schema = tool.json_schema
    return {
        "function": {
            "name": tool.name,
            "description": schema.get("description", tool.description),
            "parameters": schema.get("parameters"),
            "strict": None,
        },
        "type": "function",
    }


def stored_message(message: Message, owner_id: uuid.UUID) -> dict[str, Any]:
    """Return Letta's stored Message, which differs from its frames."""
    returned = {
        "tool_call_id": message.tool_call_id,
        "status": message.status,
        "stdout": message.stdout,
        "stderr": message.stderr,
        "func_response": message.text,
    }
    text = [{"type": "text", "text": message.text, "signature": None}] if message.text else []
    calls = [
        {
            "id": call["id"],
            "function": {"arguments": call["arguments"], "name": call["name"]},
            "type": "function",
        }
        for call in message.tool_calls
    ]
    return {
        "created_by_id": user_id(owner_id),
        "last_updated_by_id": user_id(owner_id),
        "created_at": moment(message.created_at),
        "updated_at": None,
        "id": ids.make(ids.MESSAGE, message.id),
        "agent_id": ids.make(ids.AGENT, message.agent_id),
        "model": message.model,
        "role": message.role,
        "content": message.content or text,
        "name": message.name,
        "tool_calls": calls or None,
        "tool_call_id": message.tool_call_id or None,
        "step_id": ids.make(ids.STEP, message.step_id),
        "run_id": ids.make(ids.RUN, message.run_id),
        "otid": message.otid,
        "tool_returns": [returned] if message.role == Message.Role.TOOL else [],
        "group_id": None,
        "sender_id": message.sender_id,
        "batch_item_id": None,
        "conversation_id": ids.make(ids.CONVERSATION, message.conversation_id),
        "is_err": None,
        "approval_request_id": None,
        "approve": None,
        "denial_reason": None,
        "approvals": message.approvals or [],
    }
