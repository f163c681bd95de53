"""Approvals on the wire: reading a client's decisions, and routes about them (contract letta-api §4.5)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from drf_spectacular.utils import extend_schema
from pydantic import AliasChoices, Field, model_validator
from rest_framework.request import Request
from rest_framework.response import Response

from agents.selectors import remembered_decisions
from agents.services.approvals import revoke, set_approval
from conversations.api.base import ApiView
from conversations.api.bodies import Body, JSONObject, LongText, ShortText
from conversations.selectors import pending_conversations
from conversations.services.approvals import Decision, IncomingApproval
from conversations.wire.agents import agent_states
from conversations.wire.states import pending_approval_state, remembered_decision_state
from souveraine.api.validation import failed, parse_body, parse_data, parse_query

IMAGE_RETURNED = "[The client returned an image here; tool results reach the model as text only.]"
DECISION_TYPES = ("approval", "tool_return")


class ApprovalReturn(Body):
    """A decision about one call; `remember` keeps it for later calls of the same tool."""

    type: Literal["approval"] = "approval"
    tool_call_id: ShortText
    approve: bool
    reason: LongText | None = None
    remember: bool = False


class ToolReturn(Body):
    """What a client's tool returned: text or parts."""

    type: Literal["tool"] = "tool"
    tool_call_id: ShortText
    tool_return: LongText | list[JSONObject]
    status: Literal["success", "error"]
    stdout: list[LongText] | None = None
    stderr: list[LongText] | None = None


class ApprovalCreate(Body):
    """An approval message: `approvals`, or the deprecated `approve` with `approval_request_id`."""

    type: Literal["approval"] = "approval"
    otid: ShortText | None = None
    approvals: list[Annotated[ApprovalReturn | ToolReturn, Field(discriminator="type")]] | None = (
        None
    )
    approve: bool | None = None
    approval_request_id: ShortText | None = None
    reason: LongText | None = None

    @model_validator(mode="after")
    def _decides(self) -> ApprovalCreate:
        if not self.approvals and self.approve is None:
            raise ValueError("An approval needs `approvals`, one entry for each pending tool call.")
        return self


class ToolReturnCreate(Body):
    """A tool_return message."""

    type: Literal["tool_return"]
    otid: ShortText | None = None
    tool_returns: list[ToolReturn] = Field(min_length=1)


def is_decision(item: dict[str, Any]) -> bool:
    """Tell whether an item of `messages` decides on tool calls."""
    return (
        item.get("type") in DECISION_TYPES
        or item.get("approve") is not None
        or item.get("approval_request_id") is not None
    )


def incoming_approval(item: dict[str, Any], index: int) -> IncomingApproval:
    """Read an approval or tool_return message. Raises ValidationFailed (422)."""
    if item.get("type") == "tool_return":
        returns = parse_data(ToolReturnCreate, item)
        return _incoming(
            ApprovalCreate(approvals=list(returns.tool_returns), otid=returns.otid), index
        )
    given = {**item, "type": "approval"}
    if isinstance(item.get("approvals"), list):
        given["approvals"] = [
            {"type": "approval", **entry} if isinstance(entry, dict) else entry
            for entry in item["approvals"]
        ]
    return _incoming(parse_data(ApprovalCreate, given), index)


def _incoming(message: ApprovalCreate, index: int) -> IncomingApproval:
    entries = message.approvals or []
    decisions = [_decision(entry, index) for entry in entries]
    body: dict[str, Any] = {
        "approvals": [_shown(entry) for entry in entries] or None,
        "approve": message.approve,
        "approval_request_id": message.approval_request_id,
        "reason": message.reason,
    }
    if not entries:
        decisions.append(Decision(None, _verdict(bool(message.approve), message.reason)))
    elif isinstance(entries[0], ApprovalReturn):
        first = entries[0]
        body |= {
            "approve": first.approve,
            "approval_request_id": first.tool_call_id,
            "reason": first.reason,
        }
    return IncomingApproval(tuple(decisions), body, message.approval_request_id, message.otid)


def _shown(entry: ApprovalReturn | ToolReturn) -> dict[str, Any]:
    if isinstance(entry, ApprovalReturn):
        return entry.model_dump(include={"type", "tool_call_id", "approve", "reason"})
    order = ("type", "tool_return", "status", "tool_call_id", "stdout", "stderr")
    return {key: getattr(entry, key) for key in order}


def _verdict(approve: bool, reason: str | None) -> dict[str, Any]:
    return {"type": "approve"} if approve else {"type": "deny", "reason": reason or ""}


def _decision(entry: ApprovalReturn | ToolReturn, index: int) -> Decision:
    if isinstance(entry, ApprovalReturn):
        return Decision(entry.tool_call_id, _verdict(entry.approve, entry.reason), entry.remember)
    text, content = _return_text(entry.tool_return, index)
    value = {
        "type": "return",
        "text": text,
        "content": content,
        "status": entry.status,
        "stdout": entry.stdout,
        "stderr": entry.stderr,
    }
    return Decision(entry.tool_call_id, value)


def _return_text(
    returned: str | list[JSONObject], index: int
) -> tuple[str, list[JSONObject] | None]:
    """Return the text for the model, and the parts when there is more than text."""
    if isinstance(returned, str):
        return returned, None
    texts = []
    for number, part in enumerate(returned):
        loc = ("body", "messages", index, "tool_return", number)
        if part.get("type") == "image":
            texts.append(IMAGE_RETURNED)
        elif part.get("type") == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            raise failed(
                "union_tag_invalid",
                loc,
                "Parts of a tool return are text (with `text`) or image.",
                part.get("type"),
            )
    has_images = any(part["type"] == "image" for part in returned)
    return "\n".join(texts), returned if has_images else None


class RequiresApproval(Body):
    """ModifyApprovalRequest; the old SDK sends it in the query."""

    requires_approval: bool | None = Field(
        default=None,
        # The TypeScript client sends its own parameter's name.
        validation_alias=AliasChoices("requires_approval", "body_requires_approval"),
    )


class ToolApprovalView(ApiView):
    """Whether calls of an agent's tool wait for approval."""

    query_model = RequiresApproval

    @extend_schema(operation_id="agents_tools_update_approval", request=RequiresApproval)
    def patch(self, request: Request, agent_id: str, tool_name: str) -> Response:
        """Set it, by query or body; the body counts when both are given."""
        given = parse_body(RequiresApproval, request).requires_approval
        if given is None:
            given = parse_query(RequiresApproval, request).requires_approval
        if given is None:
            raise failed(
                "missing", ("body", "requires_approval"), "Say requires_approval true or false."
            )
        agent = set_approval(self.actor, self.agent(agent_id), tool_name, required=given)
        return Response(agent_states(self.actor, [agent], with_context=True)[0])


class AgentApprovalsView(ApiView):
    """What waits for a client, and what was remembered."""

    @extend_schema(operation_id="agents_approvals_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """Return the pending requests of all conversations, and the remembered decisions."""
        agent = self.agent(agent_id)
        return Response(
            {
                "pending": [
                    pending_approval_state(conversation, message)
                    for conversation, message in pending_conversations(agent)
                ],
                "remembered": [remembered_decision_state(d) for d in remembered_decisions(agent)],
            }
        )


class RememberedApprovalView(ApiView):
    """One remembered decision."""

    @extend_schema(operation_id="agents_approvals_revoke")
    def delete(self, request: Request, agent_id: str, tool_name: str) -> Response:
        """Forget it: the next call asks again."""
        revoke(self.agent(agent_id), tool_name)
        return Response({"message": f"The next call of {tool_name} asks again."})
