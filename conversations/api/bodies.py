"""Request bodies of `/v1` (contract letta-api §13) with the seed's additions. Unknown keys are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_serializer,
    model_validator,
)

from conversations.api.tool_rule_bodies import ToolRule

ShortText = Annotated[str, StringConstraints(max_length=255)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Handle = Annotated[str, StringConstraints(max_length=255)]
LongText = Annotated[str, StringConstraints(max_length=5_000_000)]
ContextWindow = Annotated[int, Field(gt=0, le=100_000_000)]
JSONObject = dict[str, Any]
StopReason = Literal[
    "end_turn",
    "error",
    "llm_api_error",
    "invalid_llm_response",
    "invalid_tool_call",
    "max_steps",
    "max_tokens_exceeded",
    "no_tool_call",
    "tool_rule",
    "cancelled",
    "insufficient_credits",
    "requires_approval",
    "context_window_overflow_in_system_prompt",
]
# Agents of all types work the same way here; the name is kept for clients.
AgentType = Literal[
    "memgpt_agent",
    "memgpt_v2_agent",
    "letta_v1_agent",
    "react_agent",
    "workflow_agent",
    "split_thread_agent",
    "sleeptime_agent",
    "voice_convo_agent",
    "voice_sleeptime_agent",
]


class Body(BaseModel):
    """Base: unknown keys are ignored, as the old server does."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class CreateBlock(Body):
    """A block to create. `limit` in characters; 0 or null = unlimited."""

    label: Label
    value: LongText = ""
    limit: Annotated[int, Field(ge=0, le=2_000_000_000)] | None = 100_000
    description: LongText | None = None
    read_only: bool = False
    metadata: JSONObject | None = None
    tags: list[ShortText] | None = None
    hidden: bool | None = None
    project_id: ShortText | None = None
    template_name: ShortText | None = None
    is_template: bool = False
    template_id: ShortText | None = None
    base_template_id: ShortText | None = None
    deployment_id: ShortText | None = None
    entity_id: ShortText | None = None
    preserve_on_migration: bool | None = False


class BlockUpdate(Body):
    """Fields of a block to change."""

    value: LongText | None = None
    label: Label | None = None
    limit: Annotated[int, Field(ge=0, le=2_000_000_000)] | None = None
    description: LongText | None = None
    read_only: bool | None = None
    metadata: JSONObject | None = None
    tags: list[ShortText] | None = None
    hidden: bool | None = None


class SeedBlock(Body):
    """A block in the seed's AgentUpdate.memory_blocks."""

    label: Label
    value: LongText | None = None
    limit: Annotated[int, Field(ge=0, le=2_000_000_000)] | None = None
    description: LongText | None = None


class MemoryOptions(Body):
    """The seed's `memory` object."""

    git_enabled: bool | None = None
    auto_commit: bool | None = None
    context_window: ContextWindow | None = None


class SouveraineOptions(Body):
    """The seed's `_souveraine` object."""

    n1_enabled: bool | None = None
    reflection_enabled: bool | None = None
    archivist_enabled: bool | None = None
    archivist_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    sensorium_bandwidth: Literal["high", "medium", "low", "minimal"] | None = None
    subconscious_model: Handle | None = None
    reflection_model: Handle | None = None
    archivist_model: Handle | None = None


class LLMConfig(BaseModel):
    """Letta's legacy model description, kept in step with `model_settings`."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    model: Handle | None = None
    handle: Handle | None = None
    context_window: ContextWindow | None = None
    provider_name: ShortText | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(gt=0, le=10_000_000)] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    strict: bool | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class CompactionSettingsBody(Body):
    """CompactionSettings: how older messages give way to a summary. `clip_chars` null: no limit of its own."""

    model: Handle | None = None
    model_settings: ModelSettings | None = None
    prompt: LongText | None = None
    prompt_acknowledgement: bool | None = None
    clip_chars: Annotated[int, Field(ge=200, le=10_000_000)] | None = None
    mode: (
        Literal["all", "sliding_window", "self_compact_all", "self_compact_sliding_window"] | None
    ) = None
    sliding_window_percentage: Annotated[float, Field(gt=0, le=1)] | None = None


class ResponseFormat(BaseModel):
    """The form of a model's answer; `json_schema` as OpenAI's API takes it."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    type: Literal["text", "json_object", "json_schema"]

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and not isinstance(
            (self.model_extra or {}).get("json_schema"), dict
        ):
            raise ValueError("The type json_schema needs `json_schema`, an object.")
        return self


class EmbeddingConfig(BaseModel):
    """Letta's description of an embedding model; kept as given."""

    model_config = ConfigDict(extra="allow")

    embedding_endpoint_type: ShortText
    embedding_model: ShortText
    embedding_dim: Annotated[int, Field(ge=0, le=1_000_000)]
    embedding_endpoint: ShortText | None = None
    embedding_chunk_size: int | None = None
    handle: Handle | None = None


class ModelSettings(BaseModel):
    """ModelSettings of an agent, or of a conversation, where it goes before the agent's. Other keys are kept."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Field(gt=0, le=10_000_000)] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None

    @model_serializer(mode="wrap")
    def _set_ones(self, handler: Any) -> JSONObject:
        """Leave out what is null: what was there before counts then."""
        return {name: value for name, value in handler(self).items() if value is not None}


class AgentFields(Body):
    """What create and update share."""

    description: LongText | None = None
    system: LongText | None = None
    model: Handle | None = None
    llm_config: LLMConfig | None = None
    model_settings: ModelSettings | None = None
    context_window_limit: ContextWindow | None = None
    context_window: ContextWindow | None = None
    max_tokens: Annotated[int, Field(gt=0, le=10_000_000)] | None = None
    parallel_tool_calls: bool | None = None
    embedding: Handle | None = None
    embedding_config: EmbeddingConfig | None = None
    compaction_settings: CompactionSettingsBody | None = None
    response_format: ResponseFormat | None = None
    tool_rules: Annotated[list[ToolRule], Field(max_length=1000)] | None = None
    tools: list[ShortText] | None = None
    tool_ids: list[ShortText] | None = None
    block_ids: list[ShortText] | None = None
    folder_ids: Annotated[list[ShortText], Field(max_length=100)] | None = None
    source_ids: Annotated[list[ShortText], Field(max_length=100)] | None = None
    tags: list[ShortText] | None = None
    metadata: JSONObject | None = None
    secrets: dict[str, str] | None = None
    tool_exec_environment_variables: dict[str, str] | None = None
    timezone: ShortText | None = None
    max_files_open: Annotated[int, Field(gt=0, le=1000)] | None = None
    per_file_view_window_char_limit: Annotated[int, Field(gt=0, le=10_000_000)] | None = None
    message_buffer_autoclear: bool | None = None
    enable_sleeptime: bool | None = None
    hidden: bool | None = None
    project_id: ShortText | None = None
    template_id: ShortText | None = None
    base_template_id: ShortText | None = None
    identity_ids: list[ShortText] | None = None
    memory: MemoryOptions | None = None
    souveraine: SouveraineOptions | None = Field(default=None, alias="_souveraine")


class CreateAgent(AgentFields):
    """CreateAgentRequest, plus the seed's agent.json keys."""

    id: ShortText | None = None
    name: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    agent_type: AgentType = "letta_v1_agent"
    memory_blocks: list[CreateBlock] | None = None
    persona: LongText | None = None
    include_base_tools: bool = True
    include_multi_agent_tools: bool = False
    initial_message_sequence: Annotated[list[JSONObject], Field(max_length=1000)] | None = None


class UpdateAgent(AgentFields):
    """UpdateAgent, plus the seed's AgentUpdate."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    memory_blocks: list[SeedBlock] | None = None
    last_run_completion: datetime | None = None
    last_run_duration_ms: Annotated[int, Field(ge=0, le=10**15)] | None = None
    last_stop_reason: StopReason | None = None


class CreateConversation(Body):
    """CreateConversation; `agent_id` here or in the query (K6)."""

    agent_id: ShortText | None = None
    summary: LongText | None = None
    isolated_block_labels: Annotated[list[ShortText], Field(max_length=1000)] | None = None
    model: Handle | None = None
    model_settings: ModelSettings | None = None
    context_window_limit: ContextWindow | None = None
    description: LongText | None = None


class UpdateConversation(Body):
    """UpdateConversation."""

    summary: LongText | None = None
    description: LongText | None = None
    model: Handle | None = None
    model_settings: ModelSettings | None = None
    context_window_limit: ContextWindow | None = None
    last_message_at: datetime | None = None
    archived: bool | None = None


class MessageCreate(BaseModel):
    """One message to send; `content` is text or Letta content parts (text, image)."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["message"] | None = "message"
    role: Literal["user", "system", "assistant"]
    content: str | list[JSONObject]
    otid: ShortText | None = None
    name: ShortText | None = None
    sender_id: ShortText | None = None


class ClientTool(Body):
    """ClientToolSchema: a tool that the client runs when the model calls it."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    description: LongText | None = None
    parameters: JSONObject | None = None

    def as_schema(self) -> JSONObject:
        """Return it as the model is offered it."""
        parameters = self.parameters or {"type": "object", "properties": {}}
        return {
            "name": self.name,
            "description": self.description or "",
            "parameters": parameters,
        }


class ClientSkill(Body):
    """ClientSkillSchema: a skill that lies at the client; the model is told of it."""

    name: ShortText
    description: LongText
    location: LongText


class SendMessage(Body):
    """The body of every send endpoint: exactly one of `messages`, `input` and the seed's `message` (K8)."""

    messages: list[JSONObject] | None = None
    input: str | list[JSONObject] | None = None
    message: str | list[JSONObject] | None = None
    agent_id: ShortText | None = None
    streaming: bool | None = None
    stream_tokens: bool = False
    include_pings: bool = True
    background: bool = False
    when_busy: Literal["reject", "queue"] = "reject"
    max_steps: Annotated[int, Field(ge=1, le=1000)] = 50
    include_return_message_types: list[ShortText] | None = None
    override_model: Handle | None = None
    override_system: LongText | None = Field(
        default=None, validation_alias=AliasChoices("override_system", "system")
    )
    include_compaction_messages: bool = False
    client_tools: Annotated[list[ClientTool], Field(max_length=256)] | None = None
    client_skills: Annotated[list[ClientSkill], Field(max_length=1000)] | None = None

    @field_validator("client_tools")
    @classmethod
    def _unique_names(cls, tools: list[ClientTool] | None) -> list[ClientTool] | None:
        names = [tool.name for tool in tools or ()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"Two client tools have the same name: {', '.join(twice)}.")
        return tools

    @model_validator(mode="after")
    def _exactly_one(self) -> SendMessage:
        given = [
            name for name in ("messages", "input", "message") if getattr(self, name) is not None
        ]
        if not given:
            raise ValueError("Must specify either 'input' or 'messages'.")
        if len(given) > 1:
            raise ValueError(
                f"Cannot specify both '{given[1]}' and '{given[0]}'. Use one or the other."
            )
        return self


class SendAsync(SendMessage):
    """LettaAsyncRequest: as above, and whom to tell about the end."""

    callback_url: str | None = None
