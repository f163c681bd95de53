"""Create, change, delete, attach and detach tools. Custom code is stored and described here, never run."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from agents.actor import Actor
from agents.models import Agent, AgentTool, Tool
from agents.services.approvals import with_default_rules
from agents.services.portable import write_agent_json
from agents.tools import registry
from agents.tools.source import (
    SchemaNotDerived,
    check_name,
    describe,
    function_names,
    inlined,
)
from souveraine.errors import Conflict, InvalidArgument

PYTHON = ("python", "json")  # the old server wrote "json" for Python tools
OPTIONS = (
    "tags",
    "source_type",
    "args_json_schema",
    "return_char_limit",
    "pip_requirements",
    "npm_requirements",
    "default_requires_approval",
    "enable_parallel_execution",
    "metadata",
)
CLEARED_BY_NULL = ("pip_requirements", "npm_requirements", "default_requires_approval")
HASH_CHARS = 12


def put_tool(actor: Actor, data: dict[str, Any]) -> Tool:
    """Create the actor's tool, or change it when there is one of that name; of two callers both succeed.

    Raises SchemaNotDerived, or Conflict for the name of a built-in tool.
    """
    found = described(data)
    name = found["name"]
    if registry.find(name) is not None:
        raise Conflict(f"'{name}' is the name of a built-in tool. Name your function otherwise.")
    fields = {**found, **_given_options(data), "updated_at": timezone.now()}
    try:
        with transaction.atomic():
            tool, is_new = Tool.objects.get_or_create(
                owner=actor.user,
                name=name,
                defaults={"tool_type": "custom", "args_json_schema": {}, **fields},
            )
    except IntegrityError:  # somebody else created it at the same moment
        tool, is_new = Tool.objects.get(owner=actor.user, name=name), False
    if not is_new:
        _save(tool, fields)
    return tool


def update_tool(tool: Tool, data: dict[str, Any]) -> Tool:
    """Change the fields that are in `data`; a new source gives a new schema unless one is given.

    Raises InvalidArgument for a built-in tool, SchemaNotDerived, Conflict when the name cannot change.
    """
    _refuse_builtin(tool)
    fields: dict[str, Any] = _given_options(data)
    touches = ("source_code", "json_schema", "args_json_schema", "description")
    if any(data.get(key) is not None for key in touches):
        fields |= described(
            {
                "source_code": tool.source_code,
                "source_type": tool.source_type,
                **{key: value for key, value in data.items() if value is not None},
                **({} if _renews_schema(data) else _kept_schema(tool, data)),
            }
        )
    if fields.get("name", tool.name) != tool.name:
        _check_rename(tool, fields["name"])
    _save(tool, {**fields, "updated_at": timezone.now()})
    return tool


def _renews_schema(data: dict[str, Any]) -> bool:
    return any(
        data.get(key) is not None for key in ("source_code", "json_schema", "args_json_schema")
    )


def _kept_schema(tool: Tool, data: dict[str, Any]) -> dict[str, Any]:
    """Return the present schema under the new description."""
    return {"json_schema": {**tool.json_schema, "description": data["description"]}}


def described(data: dict[str, Any]) -> dict[str, Any]:
    """Return name, description, schema, source and hash of ToolCreate fields. Raises SchemaNotDerived."""
    source = data.get("source_code") or ""
    is_python = (data.get("source_type") or "python") in PYTHON
    given = data.get("json_schema")
    if given:
        found = _given_schema(given, source if is_python else None)
        description = data.get("description") or found["description"]
    elif is_python:
        derived = describe(
            source,
            description=data.get("description"),
            args_json_schema=data.get("args_json_schema"),
        )
        found, description = derived.json_schema, derived.description
    else:
        raise SchemaNotDerived(
            f"a schema is derived from Python only. Pass json_schema for source_type '{data['source_type']}'."
        )
    return {
        "name": found["name"],
        "description": description,
        "json_schema": {**found, "description": description},
        "source_code": source,
        "metadata": {"tool_hash": hashlib.sha256(source.encode()).hexdigest()[:HASH_CHARS]},
    }


def _given_schema(schema: dict[str, Any], source: str | None) -> dict[str, Any]:
    """Check a schema that came with the tool: {"name", "description", "parameters"}."""
    name, parameters = schema.get("name"), schema.get("parameters", {})
    if not isinstance(name, str) or not isinstance(parameters, dict):
        raise SchemaNotDerived(
            "json_schema needs a `name` and, as an object, `parameters`: "
            '{"name": …, "description": …, "parameters": {"type": "object", "properties": {…}, "required": […]}}.'
        )
    check_name(name)
    if source and name not in function_names(source):
        raise SchemaNotDerived(f"json_schema is of '{name}', but the source has no such function.")
    return {
        "name": name,
        "description": str(schema.get("description") or ""),
        "parameters": inlined(parameters),
    }


def _given_options(data: dict[str, Any]) -> dict[str, Any]:
    return {
        key: data[key]
        for key in OPTIONS
        if key in data and (data[key] is not None or key in CLEARED_BY_NULL)
    }


def _save(tool: Tool, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        setattr(tool, name, value)
    try:
        with transaction.atomic():
            tool.save(update_fields=list(fields))
    except IntegrityError:
        raise Conflict(f"You have a tool '{tool.name}' already. Name this one otherwise.") from None


def _check_rename(tool: Tool, name: str) -> None:
    if registry.find(name) is not None:
        raise Conflict(f"'{name}' is the name of a built-in tool. Name your function otherwise.")
    if AgentTool.objects.filter(tool=tool).exists():
        raise Conflict(
            f"'{tool.name}' cannot become '{name}' while agents have it: their rules and approvals name it. "
            "Create a new tool, or detach this one first."
        )


def _refuse_builtin(tool: Tool) -> None:
    if tool.owner_id is None:
        raise InvalidArgument(
            f"'{tool.name}' is a built-in tool: it cannot be changed or deleted. Detach it from an agent instead."
        )


def delete_tool(tool: Tool) -> None:
    """Delete a tool and detach it everywhere. Raises InvalidArgument for a built-in one."""
    _refuse_builtin(tool)
    agents = list(Agent.objects.filter(tool_rows__tool=tool))
    Tool.objects.filter(pk=tool.pk).delete()
    for agent in agents:
        write_agent_json(agent)


def attach_tool(actor: Actor, agent: Agent, tool: Tool) -> Agent:
    """Offer the agent a tool, behind those that it has, with its default approval rule. Idempotent."""
    with transaction.atomic():
        locked = Agent.objects.select_for_update().get(pk=agent.pk)
        rows = AgentTool.objects.filter(agent=locked)
        if rows.filter(tool=tool).exists():
            return locked
        if rows.filter(tool__name=tool.name).exists():
            raise Conflict(f"The agent has another tool '{tool.name}'. Detach that one first.")
        last = rows.aggregate(last=Max("position"))["last"]
        AgentTool.objects.create(agent=locked, tool=tool, position=0 if last is None else last + 1)
        locked.tool_rules = with_default_rules(locked.tool_rules or [], [tool])
        _touch(actor, locked)
    write_agent_json(locked)
    return locked


def detach_tool(actor: Actor, agent: Agent, tool: Tool) -> Agent:
    """Take a tool from the agent; the agent's rules about it stay. Idempotent."""
    with transaction.atomic():
        locked = Agent.objects.select_for_update().get(pk=agent.pk)
        gone, _ = AgentTool.objects.filter(agent=locked, tool=tool).delete()
        if not gone:
            return locked
        _touch(actor, locked)
    write_agent_json(locked)
    return locked


def _touch(actor: Actor, agent: Agent) -> None:
    agent.last_updated_by, agent.updated_at = actor.user_id, timezone.now()
    agent.save(update_fields=["tool_rules", "last_updated_by", "updated_at"])


def imported_tool(actor: Actor, known: Tool | None, data: dict[str, Any]) -> Tool | None:
    """Return an unsaved row of a custom tool of an agent file, or the known one, changed; None without a schema.

    A schema that came with the tool is taken as it is: the file's server has derived it.
    """
    schema = data.get("json_schema")
    if isinstance(schema, dict) and isinstance(schema.get("parameters", {}), dict):
        source = data.get("source_code") or ""
        found: dict[str, Any] = {
            "description": data.get("description") or str(schema.get("description") or ""),
            "json_schema": {"parameters": {"type": "object", "properties": {}}}
            | schema
            | {"name": data["name"]},
            "source_code": source,
            "metadata": {"tool_hash": hashlib.sha256(source.encode()).hexdigest()[:HASH_CHARS]},
        }
    else:
        try:
            found = described({key: value for key, value in data.items() if value is not None})
        except SchemaNotDerived:
            return None
    row = known or Tool(owner=actor.user, tool_type="custom", args_json_schema={})
    fields = {**found, **_given_options({k: v for k, v in data.items() if v is not None})}
    for name, value in {**fields, "name": data["name"], "updated_at": timezone.now()}.items():
        setattr(row, name, value)
    return row
