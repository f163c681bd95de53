"""AgentState, blocks, tools, conversations and runs as Letta's clients read them (§2, §3, §5, §6)."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from agents.folder_selectors import max_files_open, view_limit_chars
from agents.models import Agent, AgentSecret, Block, RememberedDecision, Tool, User
from agents.services.agents import SLEEPTIME
from agents.services.portable import seed_blocks
from conversations.models import Conversation, Message, Run, RunCallback, RunStatus
from conversations.wire.frames import approval_request
from souveraine import ids

ORGANIZATION_ID = "org-00000000-0000-4000-8000-000000000000"
RELATIONSHIPS = (
    "blocks",
    "tools",
    "tags",
    "sources",
    "secrets",
    "identities",
    "managed_group",
    "pending_approval",
)
SETTINGS_ORDER = (
    "max_output_tokens",
    "parallel_tool_calls",
    "provider_type",
    "temperature",
    "reasoning",
    "response_format",
    "strict",
)
STATUS_NAMES = {
    RunStatus.WAITING: "created",
    RunStatus.QUEUED: "created",
    RunStatus.INTERRUPTED: "failed",
}


def moment(value: datetime | None) -> str | None:
    """Write a datetime in UTC with microseconds and `Z`."""
    if value is None:
        return None
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def in_order(stored: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return `stored` with the named keys first: PostgreSQL's jsonb does not keep their order."""
    return {name: stored[name] for name in names if name in stored} | stored


def user_id(value: uuid.UUID | None) -> str | None:
    """Write a user id."""
    return ids.make(ids.USER, value)


def block_state(block: Block) -> dict[str, Any]:
    """Return BlockResponse."""
    given = block.config
    return {
        "value": block.value,
        "limit": block.limit,
        "project_id": given.get("project_id"),
        "template_name": given.get("template_name"),
        "is_template": bool(given.get("is_template", False)),
        "template_id": given.get("template_id"),
        "base_template_id": given.get("base_template_id"),
        "deployment_id": given.get("deployment_id"),
        "entity_id": given.get("entity_id"),
        "preserve_on_migration": bool(given.get("preserve_on_migration", False)),
        "label": block.label,
        "read_only": block.read_only,
        "description": block.description,
        "metadata": block.metadata,
        "hidden": block.hidden,
        "id": ids.make(ids.BLOCK, block.pk),
        "created_by_id": user_id(block.created_by),
        "last_updated_by_id": user_id(block.last_updated_by),
        "tags": block.tags,
        **({"souveraine_warning": block.warning} if block.warning else {}),
    }


def tool_state(tool: Tool) -> dict[str, Any]:
    """Return Letta's Tool."""
    owner = user_id(tool.owner_id) or user_id(User.FIRST_ID)
    return {
        "id": ids.make(ids.TOOL, tool.pk),
        "tool_type": tool.tool_type,
        "description": tool.description,
        "source_type": tool.source_type,
        "name": tool.name,
        "tags": tool.tags,
        "source_code": tool.source_code,
        "json_schema": tool.json_schema,
        "args_json_schema": tool.args_json_schema,
        "return_char_limit": tool.return_char_limit,
        "pip_requirements": tool.pip_requirements,
        "npm_requirements": tool.npm_requirements,
        "default_requires_approval": tool.default_requires_approval,
        "enable_parallel_execution": tool.enable_parallel_execution,
        "created_by_id": owner,
        "last_updated_by_id": owner,
        "metadata_": tool.metadata,
        "project_id": None,
    }


def secret_state(secret: AgentSecret, value: str) -> dict[str, Any]:
    """Return AgentEnvironmentVariable; `value` is empty unless the caller may see it."""
    return {
        "created_by_id": None,
        "last_updated_by_id": None,
        "created_at": moment(secret.created_at),
        "updated_at": moment(secret.updated_at),
        "id": ids.make("agent-env", secret.pk),
        "key": secret.key,
        "value": value,
        "description": secret.description,
        "organization_id": ORGANIZATION_ID,
        "value_enc": None,
        "agent_id": ids.make(ids.AGENT, secret.agent_id),
    }


def llm_config_state(agent: Agent) -> dict[str, Any]:
    """Return the legacy LLMConfig, in step with `model` and `model_settings`."""
    given, options = agent.llm_config, agent.model_settings
    provider, _, name = agent.model.partition("/")
    return {
        "model": name,
        "display_name": given.get("display_name"),
        "model_endpoint_type": given.get("model_endpoint_type") or _endpoint_type(provider),
        "model_endpoint": given.get("model_endpoint"),
        "provider_name": given.get("provider_name") or provider,
        "provider_category": given.get("provider_category") or "base",
        "model_wrapper": None,
        "context_window": agent.context_window,
        "put_inner_thoughts_in_kwargs": False,
        "handle": agent.model,
        "temperature": options.get("temperature", 1.0),
        "max_tokens": options.get("max_output_tokens"),
        "enable_reasoner": bool(given.get("enable_reasoner", False)),
        "reasoning_effort": given.get("reasoning_effort"),
        "max_reasoning_tokens": given.get("max_reasoning_tokens", 0),
        "effort": given.get("effort"),
        "frequency_penalty": given.get("frequency_penalty"),
        "compatibility_type": given.get("compatibility_type"),
        "verbosity": given.get("verbosity"),
        "tier": given.get("tier"),
        "parallel_tool_calls": bool(given.get("parallel_tool_calls", False)),
        "response_format": given.get("response_format"),
        "strict": bool(given.get("strict", False)),
        "return_logprobs": False,
        "top_logprobs": None,
        "return_token_ids": False,
        "tool_call_parser": None,
    }


def _endpoint_type(provider: str) -> str:
    return provider if provider in ("anthropic", "ollama") else "openai"


def agent_state(
    agent: Agent,
    *,
    blocks: Collection[Block],
    tools: Collection[dict[str, Any]],
    tags: Collection[str],
    secrets: Collection[dict[str, Any]],
    message_ids: Collection[str],
    counters: dict[str, Any],
    pending_approval: dict[str, Any] | None = None,
    identities: Collection[dict[str, Any]] = (),
    group: dict[str, Any] | None = None,
    folders: Collection[dict[str, Any]] = (),
    file_blocks: Collection[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return AgentState in the old server's key order, then the seed's keys (K21, K22)."""
    config = agent.config
    block_states = [block_state(b) for b in blocks]
    return {
        "created_by_id": user_id(agent.created_by),
        "last_updated_by_id": user_id(agent.last_updated_by),
        "created_at": moment(agent.created_at),
        "updated_at": moment(agent.updated_at),
        "id": ids.make(ids.AGENT, agent.pk),
        "name": agent.name,
        "tool_rules": agent.tool_rules,
        "message_ids": list(message_ids),
        "system": agent.system,
        "agent_type": agent.agent_type,
        "llm_config": llm_config_state(agent),
        "embedding_config": agent.embedding_config,
        "model": agent.model,
        "embedding": agent.embedding,
        "model_settings": in_order(agent.model_settings, SETTINGS_ORDER),
        "compaction_settings": agent.compaction_settings,
        "response_format": config.get("response_format"),
        "description": agent.description,
        "metadata": agent.metadata,
        "memory": _memory_state(agent, block_states, file_blocks),
        "blocks": block_states,
        "tools": list(tools),
        "sources": list(folders),
        "tags": list(tags),
        "tool_exec_environment_variables": list(secrets),
        "secrets": list(secrets),
        "project_id": config.get("project_id"),
        "template_id": config.get("template_id"),
        "base_template_id": config.get("base_template_id"),
        "deployment_id": config.get("deployment_id"),
        "entity_id": config.get("entity_id"),
        "identity_ids": [identity["id"] for identity in identities],
        "identities": list(identities),
        "pending_approval": pending_approval,
        "message_buffer_autoclear": bool(config.get("message_buffer_autoclear", False)),
        "enable_sleeptime": _sleeptime(agent),
        "multi_agent_group": group,
        "managed_group": group,
        "last_run_completion": moment(agent.last_run_completion),
        "last_run_duration_ms": agent.last_run_duration_ms,
        "last_stop_reason": agent.last_stop_reason,
        "timezone": config.get("timezone") or "UTC",
        "max_files_open": max_files_open(agent),
        "per_file_view_window_char_limit": view_limit_chars(agent),
        "hidden": agent.hidden,
        "memory_blocks": seed_blocks(list(blocks)),
        "_souveraine": {**agent.souveraine, **counters},
        "souveraine": {**agent.souveraine},
    }


def _sleeptime(agent: Agent) -> bool | None:
    """Return `enable_sleeptime`: null until somebody sets it, then whether the background life is on."""
    if agent.config.get("enable_sleeptime") is None:
        return None
    return any(agent.souveraine.get(name, False) for name in SLEEPTIME)


def _memory_state(
    agent: Agent, block_states: list[dict[str, Any]], file_blocks: Collection[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "agent_type": agent.agent_type,
        "git_enabled": agent.git_enabled,
        "blocks": block_states,
        "file_blocks": list(file_blocks),
        "prompt_template": "",
        "auto_commit": agent.auto_commit,
        "context_window": agent.context_window,
    }


def conversation_state(
    conversation: Conversation,
    in_context: Collection[str] = (),
    pending: Message | None = None,
) -> dict[str, Any]:
    """Return Letta's Conversation, then our counters."""
    return {
        "created_by_id": user_id(conversation.created_by),
        "last_updated_by_id": user_id(conversation.last_updated_by),
        "created_at": moment(conversation.created_at),
        "updated_at": moment(conversation.updated_at),
        "id": ids.make(ids.CONVERSATION, conversation.pk),
        "agent_id": ids.make(ids.AGENT, conversation.agent_id),
        "summary": conversation.summary,
        "in_context_message_ids": list(in_context),
        "isolated_block_ids": [f"block-{pk}" for pk in conversation.isolated_blocks.values()],
        "model": conversation.model,
        "model_settings": conversation.model_settings,
        "last_message_at": moment(conversation.last_message_at),
        "archived": conversation.archived_at is not None,
        "archived_at": moment(conversation.archived_at),
        "context_window_limit": conversation.context_window,
        "description": conversation.description,
        "_souveraine": {
            **conversation_counters(conversation),
            "pending_approval": approval_request(pending) if pending else None,
        },
    }


def conversation_counters(conversation: Conversation) -> dict[str, Any]:
    """Return the counters of K9, pressure (0…1) and the time of the last reflection."""
    return {
        "turn_count": conversation.turn_count,
        "message_count": conversation.message_count,
        "context_tokens": conversation.context_tokens,
        "context_pressure": conversation.context_pressure,
        "last_n25": moment(conversation.last_n25_at),
    }


def pending_approval_state(conversation: Conversation, message: Message) -> dict[str, Any]:
    """Return a pending request: its ApprovalRequestMessage and where it waits."""
    return {
        "conversation_id": ids.make(ids.CONVERSATION, conversation.pk),
        "is_default": conversation.is_default,
        "request": approval_request(message),
    }


def remembered_decision_state(decision: RememberedDecision) -> dict[str, Any]:
    """Return a decision that later calls of the tool follow until it is revoked."""
    return {
        "tool_name": decision.tool_name,
        "approve": decision.approve,
        "reason": decision.reason or None,
        "decided_by_id": user_id(decision.decided_by),
        "created_at": moment(decision.created_at),
    }


def run_state(run: Run) -> dict[str, Any]:
    """Return Letta's Run (`completed_at` has no zone on the wire). Read it with its callback."""
    status = RunStatus(run.status)
    metadata: dict[str, Any] = {
        "run_type": run.request.get("run_type", "send_conversation_message")
    }
    if run.error:
        metadata["error"] = {"run_id": ids.make(ids.RUN, run.pk), **run.error}
    if run.request.get("notices"):
        metadata["notices"] = run.request["notices"]
    callback: RunCallback | None = getattr(run, "callback", None)
    completed = run.completed_at.strftime("%Y-%m-%dT%H:%M:%S.%f") if run.completed_at else None
    return {
        "id": ids.make(ids.RUN, run.pk),
        "status": STATUS_NAMES.get(status, str(status.value)),
        "created_at": moment(run.created_at),
        "completed_at": completed,
        "agent_id": ids.make(ids.AGENT, run.agent_id),
        "conversation_id": ids.make(ids.CONVERSATION, run.conversation_id),
        "base_template_id": None,
        "background": run.background,
        "metadata": metadata,
        "request_config": {
            "use_assistant_message": True,
            "assistant_message_tool_name": "send_message",
            "assistant_message_tool_kwarg": "message",
            "include_return_message_types": run.request.get("include_return_message_types"),
        },
        "stop_reason": run.stop_reason or None,
        "callback_url": callback.url if callback else None,
        "callback_sent_at": moment(callback.sent_at) if callback else None,
        "callback_status_code": callback.status_code if callback else None,
        "callback_error": (callback.error or None) if callback else None,
        "ttft_ns": run.ttft_ns,
        "total_duration_ns": run.total_duration_ns,
    }
