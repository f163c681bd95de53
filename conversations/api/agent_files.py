"""Export and import of agent files (`.af`)."""

from __future__ import annotations

import json
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Agent
from conversations.agent_files.document import read_document
from conversations.agent_files.exporting import export_agent, file_name
from conversations.agent_files.importing import (
    ImportOptions,
    agent_ids,
    carry_out,
    notices,
    plan_import,
    report,
)
from conversations.agent_files.reading import read_entities
from conversations.api.base import ApiView
from conversations.api.bodies import Body, Handle, JSONObject, LongText, ShortText
from conversations.composition import server
from conversations.wire.states import tool_state
from souveraine import ids
from souveraine.api.validation import failed, parse_body, parse_parameters, parse_query
from souveraine.errors import InvalidArgument


class ExportQuery(BaseModel):
    """Query of export; `max_steps` had a meaning in the single-agent form only."""

    max_steps: int = 100
    use_legacy_format: bool = False
    conversation_id: str | None = None
    scrub_messages: bool = False


class Skill(Body):
    """SkillSchema: it goes into the file as it is."""

    name: ShortText
    files: dict[str, LongText] | None = None
    source_url: ShortText | None = None


class ExportBody(Body):
    """ExportAgentRequest."""

    skills: list[Skill] = Field(default=[], max_length=1000)
    conversation_id: str | None = None
    scrub_messages: bool = False


class ImportForm(BaseModel):
    """Body_import_agent, without the file; `dry_run` is ours."""

    override_existing_tools: bool = True
    strip_messages: bool = False
    append_copy_suffix: bool = True
    secrets: str | None = None
    env_vars_json: str | None = None
    name: ShortText | None = None
    override_name: ShortText | None = None
    embedding: Handle | None = None
    override_embedding_handle: Handle | None = None
    model: Handle | None = None
    override_model_handle: Handle | None = None
    dry_run: bool = False


class AgentExportView(ApiView):
    """An agent as a file."""

    query_model = ExportQuery

    @extend_schema(operation_id="agents_export_file")
    def get(self, request: Request, agent_id: str) -> Response:
        """Return the agent with its blocks, tools and messages as JSON; values of secrets are left out."""
        query = parse_query(ExportQuery, request)
        if query.use_legacy_format:
            raise InvalidArgument(
                "The single-agent format of 2025 is no longer written. Export without use_legacy_format; both forms "
                "can be imported."
            )
        return self._exported(agent_id, query.conversation_id, query.scrub_messages, [])

    @extend_schema(operation_id="agents_export_with_skills", request=ExportBody)
    def post(self, request: Request, agent_id: str) -> Response:
        """Return the same, with the skills of the body."""
        body = parse_body(ExportBody, request)
        skills = [skill.model_dump() for skill in body.skills]
        return self._exported(agent_id, body.conversation_id, body.scrub_messages, skills)

    def _exported(
        self, agent_id: str, named: str | None, scrub_messages: bool, skills: list[JSONObject]
    ) -> Response:
        agent = self.agent(agent_id)
        conversation = self.conversation(named or "default", ids.make(ids.AGENT, agent.pk))
        if conversation.agent_id != agent.pk:
            raise failed(
                "value_error",
                ("query", "conversation_id"),
                "This conversation belongs to another agent.",
            )
        document = export_agent(
            agent,
            conversation,
            scrub_messages=scrub_messages,
            skills=skills,
            tool_state=tool_state,
        )
        disposition = f'attachment; filename="{file_name(agent)}"'
        return Response(document, headers={"Content-Disposition": disposition})


class AgentImportView(ApiView):
    """Agents out of a file."""

    parser_classes = [MultiPartParser]
    query_model = ImportForm

    @extend_schema(operation_id="agents_import_file", request={"multipart/form-data": ImportForm})
    def post(self, request: Request) -> Response:
        """Create the agents of the file, all or none; with `dry_run` only say what would happen."""
        form = self._form(request)
        options = _options(form)
        entities = read_document(self._file(request))
        file = read_entities(entities, strip_messages=form.strip_messages)
        plan = plan_import(self.actor, file, options)
        if form.dry_run:
            return Response(report(plan))
        agents: list[Agent] = carry_out(self.actor, plan)
        for agent in agents:
            server().sessions.default_conversation(self.actor, agent)
        return Response({"agent_ids": agent_ids(agents), "notices": notices(plan)})

    def _form(self, request: Request) -> ImportForm:
        form = request.POST  # without the file, which is not to be copied
        if not isinstance(form, QueryDict):
            raise failed("missing", ("body", "file"), "Field required: send a multipart form")
        given = form.copy()
        given.update(request.query_params)
        return parse_parameters(ImportForm, given)

    def _file(self, request: Request) -> bytes:
        file = request.FILES.get("file")
        if not isinstance(file, UploadedFile):
            raise failed(
                "missing",
                ("body", "file"),
                "Field required: the agent file, as multipart form field",
            )
        return bytes(file.read())


def _options(form: ImportForm) -> ImportOptions:
    secrets = form.secrets if form.secrets is not None else form.env_vars_json
    model = form.model or form.override_model_handle or None
    return ImportOptions(
        name=form.name or form.override_name or None,
        model=model,
        embedding=form.embedding or form.override_embedding_handle or None,
        secrets=_secrets(secrets) if secrets else {},
        append_copy_suffix=form.append_copy_suffix,
        override_existing_tools=form.override_existing_tools,
    )


def _secrets(text: str) -> dict[str, str]:
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    is_map = isinstance(given, dict) and all(isinstance(value, str) for value in given.values())
    if not is_map or any(
        "\x00" in part or len(part) > 100_000 for pair in given.items() for part in pair
    ):
        raise failed(
            "value_error",
            ("body", "secrets"),
            'secrets is a JSON object of texts: {"NAME": "value"}',
        )
    return dict(given)
