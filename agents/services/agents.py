"""Create, change and delete agents. Creation is all or nothing: folder and rows appear together."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.actor import Actor
from agents.models import (
    Agent,
    AgentBlock,
    AgentSecret,
    AgentTag,
    AgentTool,
    Block,
    Tool,
    default_souveraine,
)
from agents.provider_selectors import get_model
from agents.providers import registry
from agents.providers.base import ModelInfo
from agents.selectors import blocks_of, tools_of
from agents.services import memory
from agents.services.approvals import with_default_rules
from agents.services.archives import delete_own_archive
from agents.services.blocks import check_put, put_block, replace_blocks
from agents.services.folders import find_folders, replace_folders
from agents.services.identities import find_identities
from agents.services.portable import write_agent_json
from agents.tools.registry import BASE_TOOLS, MULTI_AGENT_TOOLS
from souveraine import ids
from souveraine.errors import Conflict, InvalidArgument, NotFound, UnknownTool
from souveraine.lib.secrets import encrypt

DIRECT = (
    "name",
    "description",
    "agent_type",
    "system",
    "embedding",
    "embedding_config",
    "compaction_settings",
    "tool_rules",
    "metadata",
    "hidden",
    "last_run_completion",
    "last_run_duration_ms",
    "last_stop_reason",
)
SLEEPTIME = ("n1_enabled", "reflection_enabled")  # what a sleeptime agent did on the old server
CONFIG_KEYS = (
    "response_format",
    "project_id",
    "template_id",
    "base_template_id",
    "deployment_id",
    "entity_id",
    "message_buffer_autoclear",
    "enable_sleeptime",
    "timezone",
    "max_files_open",
    "per_file_view_window_char_limit",
)


# What clients ask for when nothing was chosen: the hosted service picks a model then, and so do we.
HOSTED_CHOICES = frozenset({"letta/auto", "letta/auto-fast", "letta/letta-free"})


def choose_model(actor: Actor, data: dict[str, Any]) -> ModelInfo:
    """Return the model that the fields name (`model`, `llm_config`), else or for `letta/auto` the default.

    Raises InvalidArgument (no model, bad handle, unknown provider) or NotFound (unknown model).
    """
    handle = data.get("model")
    llm_config = data.get("llm_config") or {}
    if not handle and llm_config:
        handle = llm_config.get("handle") or llm_config.get("model")
        if handle and "/" not in handle and llm_config.get("provider_name"):
            handle = f"{llm_config['provider_name']}/{handle}"
    if handle and handle not in HOSTED_CHOICES:
        return get_model(actor, handle)
    default = registry.default_model()
    if default is None:
        reasons = " ".join(registry.problems().values())
        raise InvalidArgument(
            "Must specify either model or llm_config in request. No model was found to fall back to: "
            + (reasons or "start Ollama, or set OPENAI_BASE_URL or OPENAI_API_KEY.")
        )
    return default


# Name in the legacy llm_config → name in model_settings.
MIRRORED = {
    "temperature": "temperature",
    "max_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "response_format": "response_format",
    "strict": "strict",
    "verbosity": "verbosity",
}


def model_fields(data: dict[str, Any], model: ModelInfo, current: Agent | None) -> dict[str, Any]:
    """Keep `model`, `model_settings`, `llm_config` and the context window in step (contract §2)."""
    llm = dict(current.llm_config if current else {})
    llm.update(
        {
            k: v
            for k, v in (data.get("llm_config") or {}).items()
            if k not in ("model", "context_window", "handle")
        }
    )
    window = (
        data.get("context_window_limit")
        or (data.get("llm_config") or {}).get("context_window")
        or data.get("context_window")
        or (data.get("memory") or {}).get("context_window")
        or (current.context_window if current and not data.get("model") else None)
        or model.context_window
    )
    settings_ = {
        "max_output_tokens": data.get("max_tokens") or model.max_output_tokens,
        "parallel_tool_calls": True,
        "provider_type": model.provider_type,
        "temperature": 1.0,
        "reasoning": {"reasoning_effort": "minimal"},
        "response_format": None,
        "strict": False,
        **(current.model_settings if current else {}),
        **{k: v for k, v in (data.get("model_settings") or {}).items() if v is not None},
    }
    _mirror(data, llm, settings_)
    return {
        "model": model.handle,
        "context_window": window,
        "llm_config": llm,
        "model_settings": settings_,
    }


def _mirror(data: dict[str, Any], llm: dict[str, Any], settings_: dict[str, Any]) -> None:
    """Write what is newly given in one form into the other, unless that one says it too.

    Agent files name everything in both forms; `model_settings` are what counts.
    """
    new = {k: v for k, v in (data.get("model_settings") or {}).items() if v is not None}
    if data.get("parallel_tool_calls") is not None:
        new["parallel_tool_calls"] = data["parallel_tool_calls"]
    if data.get("max_tokens") is not None:
        new.setdefault("max_output_tokens", data["max_tokens"])
    legacy = data.get("llm_config") or {}
    for old_name, name in MIRRORED.items():
        if name in new:
            settings_[name] = new[name]
            if old_name not in legacy:
                llm[old_name] = new[name]
        elif legacy.get(old_name) is not None:
            settings_[name] = legacy[old_name]
    effort = (new.get("reasoning") or {}).get("reasoning_effort")
    if effort is not None and "reasoning_effort" not in legacy:
        llm["reasoning_effort"] = effort
    elif effort is None and legacy.get("reasoning_effort") is not None:
        settings_["reasoning"] = {"reasoning_effort": legacy["reasoning_effort"]}


def seed_fields(data: dict[str, Any], current: Agent | None) -> dict[str, Any]:
    """Read the seed's keys (`memory`, `_souveraine`), and `enable_sleeptime`, which is our background life."""
    fields: dict[str, Any] = {}
    for key in ("git_enabled", "auto_commit"):
        if (data.get("memory") or {}).get(key) is not None:
            fields[key] = data["memory"][key]
    asleep = data.get("enable_sleeptime")
    given = {} if asleep is None else dict.fromkeys(SLEEPTIME, asleep)
    given |= data.get("souveraine") or {}
    if given:
        base = current.souveraine if current else default_souveraine()
        fields["souveraine"] = {**base, **given}
    return fields


def find_tools(actor: Actor, data: dict[str, Any], *, base: bool) -> list[Tool]:
    """Return the tools that `tools` and `tool_ids` name, in order. Raises UnknownTool and NotFound."""
    names = list(data.get("tools") or [])
    if base:
        names = [*BASE_TOOLS, *names]
    if data.get("include_multi_agent_tools"):
        names += MULTI_AGENT_TOOLS
    by_name = {t.name: t for t in tools_of(actor).filter(name__in=names).order_by("owner")}
    missing = {name for name in names if name not in by_name}
    if missing:
        raise UnknownTool(f"Tools not found by name: {missing}")
    wanted = [by_name[name] for name in names]
    tool_ids = [ids.parse(ids.TOOL, text) for text in data.get("tool_ids") or []]
    by_id = {t.pk: t for t in tools_of(actor).filter(pk__in=tool_ids)}
    unknown = [ids.make(ids.TOOL, i) for i in tool_ids if i not in by_id]
    if unknown:
        raise NotFound(f"Tools not found: {', '.join(map(str, unknown))}")
    return list(dict.fromkeys([*wanted, *(by_id[i] for i in tool_ids)]))


def find_blocks(actor: Actor, block_ids: list[str]) -> list[Block]:
    """Return the blocks of these ids, in order. Raises NotFound, and Conflict for two of one label."""
    wanted = [ids.parse(ids.BLOCK, text) for text in block_ids]
    found = {b.pk: b for b in blocks_of(actor).filter(pk__in=wanted)}
    missing = [ids.make(ids.BLOCK, i) for i in wanted if i not in found]
    if missing:
        raise NotFound(f"Blocks not found: {', '.join(map(str, missing))}")
    blocks = [found[i] for i in dict.fromkeys(wanted)]
    labels = [b.label for b in blocks]
    for label in labels:
        if labels.count(label) > 1:
            raise Conflict(
                f"Two of the blocks in block_ids have the label '{label}'. Rename one of them first."
            )
    return blocks


def save_tags(agent: Agent, tags: list[str]) -> None:
    """Replace the agent's tags; each is kept once."""
    AgentTag.objects.filter(agent=agent).delete()
    unique = list(dict.fromkeys(tags))
    AgentTag.objects.bulk_create(
        AgentTag(agent=agent, tag=t, position=i) for i, t in enumerate(unique)
    )


def save_secrets(agent: Agent, data: dict[str, Any]) -> None:
    """Replace the agent's secrets, encrypted, when `data` has any."""
    given = (
        data.get("secrets")
        if data.get("secrets") is not None
        else data.get("tool_exec_environment_variables")
    )
    if given is None:
        return
    AgentSecret.objects.filter(agent=agent).exclude(key__in=given).delete()
    for key, value in given.items():
        AgentSecret.objects.update_or_create(
            agent=agent, key=key, defaults={"value_encrypted": encrypt(value)}
        )


def update_agent(actor: Actor, agent: Agent, data: dict[str, Any]) -> Agent:
    """Change the fields that are in `data` (present and null clears); `tags`, ids and secrets replace the set."""
    tools = (
        find_tools(actor, data, base=False)
        if _has(data, "tools") or _has(data, "tool_ids")
        else None
    )
    blocks = find_blocks(actor, data["block_ids"]) if _has(data, "block_ids") else None
    folders = find_folders(actor, data)
    for item in data.get("memory_blocks") or []:
        check_put(actor, agent, item)
    people = find_identities(actor, data["identity_ids"]) if _has(data, "identity_ids") else None
    with transaction.atomic():
        locked = Agent.objects.select_for_update().get(pk=agent.pk)
        _apply(actor, locked, data)
        locked.last_updated_by, locked.updated_at = actor.user_id, timezone.now()
        locked.save()
        if tools is not None:
            locked.tool_rules = with_default_rules(locked.tool_rules or [], tools)
            locked.save(update_fields=["tool_rules"])
            AgentTool.objects.filter(agent=locked).delete()
            AgentTool.objects.bulk_create(
                AgentTool(agent=locked, tool=t, position=i) for i, t in enumerate(tools)
            )
        if _has(data, "tags"):
            save_tags(locked, data["tags"])
        save_secrets(locked, data)
        if people is not None:
            locked.identities.set(people)
    if blocks is not None:
        replace_blocks(locked, blocks)
    if folders is not None:
        replace_folders(actor, locked, folders)
    for item in data.get("memory_blocks") or []:
        put_block(actor, locked, item)
    memory.sync_blocks(locked)
    write_agent_json(locked)
    return Agent.objects.get(pk=agent.pk)


def _has(data: dict[str, Any], key: str) -> bool:
    return data.get(key) is not None


def _apply(actor: Actor, agent: Agent, data: dict[str, Any]) -> None:
    for name in DIRECT:
        if name in data and (
            data[name] is not None or name in ("description", "metadata", "hidden")
        ):
            setattr(agent, name, data[name])
    names_model = _has(data, "model") or bool((data.get("llm_config") or {}).get("model"))
    touches = (
        "model_settings",
        "llm_config",
        "context_window_limit",
        "context_window",
        "parallel_tool_calls",
        "memory",
        "max_tokens",
    )
    if names_model or any(_has(data, key) for key in touches):
        model = choose_model(actor, data) if names_model else _current_model(agent)
        for name, value in model_fields(data, model, agent).items():
            setattr(agent, name, value)
    for name, value in seed_fields(data, agent).items():
        setattr(agent, name, value)
    agent.config = {**agent.config, **{key: data[key] for key in CONFIG_KEYS if key in data}}


def _current_model(agent: Agent) -> ModelInfo:
    """Describe the agent's model from its row: its provider need not be there to change a setting."""
    provider, _, name = agent.model.partition("/")
    return ModelInfo(
        handle=agent.model,
        name=name,
        provider_name=provider,
        provider_type=agent.model_settings.get("provider_type", "openai"),
        endpoint_type=agent.llm_config.get("model_endpoint_type", "openai"),
        endpoint=agent.llm_config.get("model_endpoint") or "",
        context_window=agent.context_window,
        display_name=name,
        capabilities=None,
    )


def delete_agent(actor: Actor, agent: Agent) -> None:
    """Delete an agent with its own blocks, conversations and folder; shared and free blocks stay.

    The rows go first, in one transaction; a crash before the folder is gone leaves only an unused folder.
    """
    with transaction.atomic():
        own = Block.objects.filter(agent_rows__agent=agent, config__own=str(agent.pk))
        keep = own.filter(pk__in=AgentBlock.objects.exclude(agent=agent).values("block"))
        own_ids = set(own.values_list("pk", flat=True)) - set(keep.values_list("pk", flat=True))
        delete_own_archive(agent)
        Agent.objects.filter(pk=agent.pk).delete()  # `agent` keeps its id, which names the folder
        Block.objects.filter(pk__in=own_ids).delete()
    transaction.on_commit(partial(memory.remove, agent))
