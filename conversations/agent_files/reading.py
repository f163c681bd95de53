"""What the entities of an agent file mean: checked fields, and a notice for each thing that is left out.

A file is taken as far as it goes: one field that nobody understands must not cost an agent. Nothing here
asks the database.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from agents.services.archives import NewPassage
from agents.services.blocks import check_label
from conversations.agent_files.document import Entity, listed
from conversations.agent_files.messages import History, moment_of, read_history
from conversations.api.bodies import Body, CreateAgent, CreateBlock, JSONObject, LongText, ShortText
from conversations.api.tool_rule_bodies import ToolRule
from souveraine.errors import InvalidArgument

CURRENT_TYPE = "letta_v1_agent"
UNKNOWN_TYPE_CHARS = re.compile(r"[^A-Za-z0-9_./-]+")
# Of an agent: read by themselves, or meant for another server.
NOT_FIELDS = (
    "id",
    "memory_blocks",
    "tools",
    "tool_ids",
    "tool_rules",
    "block_ids",
    "identity_ids",
    "project_id",
    "template_id",
    "base_template_id",
    "enable_sleeptime",
    "model_settings",
    "include_base_tools",
    "passages",
)
M = TypeVar("M", bound=BaseModel)
_RULE: TypeAdapter[Any] = TypeAdapter(ToolRule)


class FileTool(Body):
    """AfToolSchema."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    tool_type: ShortText = "custom"
    description: LongText | None = None
    source_type: Annotated[str, Field(max_length=20)] | None = None
    source_code: LongText | None = None
    json_schema: JSONObject | None = None
    args_json_schema: JSONObject | None = None
    tags: list[ShortText] | None = None
    return_char_limit: Annotated[int, Field(gt=0, le=10_000_000)] | None = None
    pip_requirements: list[JSONObject] | None = None
    npm_requirements: list[JSONObject] | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None


class FilePassage(Body):
    """A passage of archival memory, in files of this server."""

    text: Annotated[LongText, Field(min_length=1)]
    tags: list[ShortText] | None = None
    metadata: JSONObject | None = None
    created_at: str | None = None


@dataclass
class FileAgent:
    """One agent of the file. `data` are CreateAgent fields, `tools` and `shared_blocks` ids of the file."""

    file_id: str
    data: dict[str, Any]
    tools: list[str]
    shared_blocks: list[str]
    history: History
    passages: list[NewPassage] = field(default_factory=list)


@dataclass
class AgentFile:
    """All of it."""

    agents: list[FileAgent]
    tools: dict[str, FileTool]
    blocks: dict[str, dict[str, Any]]
    groups: list[Entity]
    notices: list[str] = field(default_factory=list)


def read_entities(entities: dict[str, list[Entity]], *, strip_messages: bool = False) -> AgentFile:
    """Return the checked content. Raises InvalidArgument when an agent cannot be read at all."""
    notices: list[str] = []
    blocks = _read_blocks(entities["blocks"], notices)
    tools = _read_tools(entities["tools"], notices)
    uses = Counter(pk for agent in entities["agents"] for pk in set(_texts(agent, "block_ids")))
    shared = {pk for pk, count in uses.items() if count > 1}
    agents = []
    for number, agent in enumerate(entities["agents"]):
        reader = _AgentReader(agent, number, notices)
        agents.append(reader.read(blocks, tools, shared, strip_messages=strip_messages))
    for kind in ("files", "sources", "mcp_servers"):
        if entities[kind]:
            notices.append(f"{len(entities[kind])} {kind} of the file are left out.")
    return AgentFile(agents, tools, blocks, entities["groups"], notices)


def _texts(entity: Entity, key: str) -> list[str]:
    return [text for text in listed(entity.get(key)) if isinstance(text, str)]


def lenient(model: type[M], data: Entity, what: str, notices: list[str]) -> M | None:
    """Validate, without the fields that are wrong; None when it cannot be read without them."""
    for _ in range(2):
        try:
            return model.model_validate(data)
        except ValidationError as exc:
            wrong = {str(error["loc"][0]) for error in exc.errors() if error["loc"]}
            notices.append(f"{what}: {', '.join(sorted(wrong))} cannot be read and is left out.")
            data = {key: value for key, value in data.items() if key not in wrong}
    return None


def _read_blocks(given: list[Entity], notices: list[str]) -> dict[str, dict[str, Any]]:
    blocks: dict[str, dict[str, Any]] = {}
    for number, entity in enumerate(given):
        block = read_block(entity, notices)
        if block is not None:
            blocks[str(entity.get("id") or f"block-{number}")] = block
    return blocks


def read_block(entity: Entity, notices: list[str]) -> dict[str, Any] | None:
    """Return CreateBlock fields that can be stored; a limit that its value exceeds gives way."""
    known = {"metadata": entity.get("metadata_"), **entity}
    block = lenient(CreateBlock, known, f"Block {str(entity.get('label'))[:60]!r}", notices)
    if block is None:
        return None
    data = block.model_dump()
    if data["limit"] is not None and len(data["value"]) > (data["limit"] or len(data["value"])):
        notices.append(
            f"Block '{data['label'][:60]}' is longer than its limit of {data['limit']}, which is raised."
        )
        data["limit"] = len(data["value"])
    data["label"] = _usable_label(data["label"], notices)
    return data


def _usable_label(label: str, notices: list[str]) -> str:
    try:
        check_label(label)
        return label
    except InvalidArgument:
        usable = UNKNOWN_TYPE_CHARS.sub("_", label).strip("./_")[:200] or "block"
        usable = usable.replace("..", "_")
        notices.append(f"The block label {label[:60]!r} is no usable name; it becomes {usable!r}.")
        return usable


def _read_tools(given: list[Entity], notices: list[str]) -> dict[str, FileTool]:
    tools = {}
    for number, entity in enumerate(given):
        schema = entity.get("json_schema")
        name = entity.get("name") or (schema.get("name") if isinstance(schema, dict) else None)
        tool = lenient(FileTool, {**entity, "name": name}, f"Tool {str(name)[:60]!r}", notices)
        if tool is None:
            notices.append(f"Tool {str(name)[:60]!r} cannot be read and is left out.")
        else:
            tools[str(entity.get("id") or f"tool-{number}")] = tool
    return tools


class _AgentReader:
    """Reads one agent; `where` names it in notices."""

    def __init__(self, entity: Entity, number: int, notices: list[str]) -> None:
        self.entity, self.notices = entity, notices
        self.file_id = str(entity.get("id") or f"agent-{number}")
        self.where = f"Agent {str(entity.get('name') or self.file_id)[:60]!r}"

    def read(
        self,
        blocks: dict[str, dict[str, Any]],
        tools: dict[str, FileTool],
        shared: set[str],
        *,
        strip_messages: bool,
    ) -> FileAgent:
        data = self._fields()
        data["memory_blocks"], of_others = self._blocks(blocks, shared)
        data["tool_rules"] = self._rules()
        data["model_settings"] = self._model_settings()
        is_old = data["agent_type"] != CURRENT_TYPE
        items = [] if strip_messages else listed(self.entity.get("messages"))
        context = self.entity.get("in_context_message_ids") or self.entity.get("message_ids") or []
        history = read_history(items, listed(context) if items else [], is_old_type=is_old)
        if history.skipped:
            self._note(f"{history.skipped} messages cannot be read and are left out.")
        passages = self._passages()
        return FileAgent(self.file_id, data, self._tool_ids(tools), of_others, history, passages)

    def _note(self, text: str) -> None:
        self.notices.append(f"{self.where}: {text}")

    def _fields(self) -> dict[str, Any]:
        given = {k: v for k, v in self.entity.items() if k not in NOT_FIELDS and v is not None}
        given.setdefault("metadata", self.entity.get("metadata_"))
        read = lenient(CreateAgent, given, self.where, self.notices)
        if read is None:
            raise InvalidArgument(f"Corrupted agent file format: {self.where} cannot be read.")
        data = read.model_dump(exclude_unset=True)
        data["agent_type"] = data.get("agent_type") or CURRENT_TYPE
        secrets = data.pop("tool_exec_environment_variables", None) or {}
        data["secrets"] = {**secrets, **(data.get("secrets") or {})}
        for key in [key for key, value in data["secrets"].items() if not value]:
            del data["secrets"][key]
            self._note(f"the file has no value for the secret {key[:60]!r}: set it on the agent.")
        return data

    def _blocks(
        self, blocks: dict[str, dict[str, Any]], shared: set[str]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the agent's own blocks, and the file's ids of those that others have too."""
        memory = self.entity.get("memory")
        inner = memory.get("blocks") if isinstance(memory, dict) else None
        inline = self.entity.get("memory_blocks") or inner or ()
        found = [
            read_block(item, self.notices) for item in listed(inline) if isinstance(item, dict)
        ]
        own, of_others = [block for block in found if block], []
        for pk in _texts(self.entity, "block_ids"):
            if pk not in blocks:
                self._note(f"its block {pk[:60]!r} is not in the file.")
            elif pk in shared:
                of_others.append(pk)
            else:
                own.append(blocks[pk])
        return self._unique(own, {blocks[pk]["label"] for pk in of_others}), of_others

    def _unique(self, blocks: list[dict[str, Any]], taken: set[str]) -> list[dict[str, Any]]:
        unique = []
        for block in blocks:
            label, number = block["label"], 2
            while block["label"] in taken:
                block = {**block, "label": f"{label[:190]}_{number}"}
                number += 1
            if block["label"] != label:
                self._note(
                    f"it has two blocks '{label[:60]}'; one becomes '{block['label'][:60]}'."
                )
            taken.add(block["label"])
            unique.append(block)
        return unique

    def _tool_ids(self, tools: dict[str, FileTool]) -> list[str]:
        """Return the file's ids of its tools; older files have the tools, or their names, in the agent."""
        wanted = []
        for pk in _texts(self.entity, "tool_ids"):
            if pk in tools:
                wanted.append(pk)
            else:
                self._note(f"its tool {pk[:60]!r} is not in the file.")
        for item in listed(self.entity.get("tools")):
            name = item if isinstance(item, str) else None
            if isinstance(item, dict):
                read = _read_tools([item], self.notices)
                name = next((tool.name for tool in read.values()), None)
                tools.update({tool.name: tool for tool in read.values()})
            if name and name not in tools:
                entity = {"name": name, "tool_type": "named"}
                named = lenient(FileTool, entity, f"Tool {name[:60]!r}", self.notices)
                tools |= {name: named} if named else {}
            if name in tools:
                wanted.append(name)
        return wanted

    def _passages(self) -> list[NewPassage]:
        passages, skipped = [], 0
        for given in listed(self.entity.get("passages")):
            try:
                read = FilePassage.model_validate(given)
            except ValidationError:
                skipped += 1
                continue
            passages.append(
                NewPassage(read.text, read.tags, read.metadata or {}, moment_of(read.created_at))
            )
        if skipped:
            self._note(f"{skipped} passages cannot be read and are left out.")
        return passages

    def _rules(self) -> list[dict[str, Any]]:
        rules = []
        for given in listed(self.entity.get("tool_rules")):
            try:
                rules.append(_RULE.validate_python(given).model_dump(exclude_unset=True))
            except ValidationError:
                kind = str(given.get("type") if isinstance(given, dict) else given)[:60]
                self._note(f"a tool rule of type {kind!r} cannot be read and is left out.")
        return rules

    def _model_settings(self) -> dict[str, Any]:
        """Return the model's settings, from `llm_config` where the file has them only there."""
        given, llm = self.entity.get("model_settings"), self.entity.get("llm_config")
        settings: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        for name, source in (("temperature", "temperature"), ("max_output_tokens", "max_tokens")):
            value = llm.get(source) if isinstance(llm, dict) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                settings.setdefault(name, value)
        return settings
