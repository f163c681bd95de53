"""Every error a caller can see, one class each; `souveraine.api.exceptions` renders them.

SouveraineError
├── InvalidArgument 400        the request cannot be carried out as asked
│   ├── UnknownTool            a tool is named that does not exist
│   ├── NothingPending         a decision came, but no tool call waits for one
│   └── InvalidToolCallIds     a decision names other calls than those that wait
├── ValidationFailed 422       the body or query has the wrong form
├── Unauthorized 401 / Forbidden 403
├── NotFound 404
│   └── McpServerUnavailable   an MCP server cannot be asked
├── EditingRefused 405         a stored message was to be changed
├── Conflict 409
│   ├── ConversationBusy       a run is in progress (`run_id`, `hint`)
│   ├── UniqueViolation        something of that name is there already
│   ├── QueueFull              too many messages wait for their turn (`waiting`, `limit`)
│   ├── PendingApproval        a tool call waits for a decision
│   └── ConcurrentUpdate       somebody else wrote first
├── Expired 410
├── PayloadTooLarge 413
├── UnsupportedMediaType 415
├── Unavailable 503            database, Redis or another part is missing
└── ProviderError              the model's provider failed (`error_type`, status by type)
"""

from __future__ import annotations

from typing import Any, ClassVar


class SouveraineError(Exception):
    """Base: `message` says what happened and what to do; `data` is added to the JSON body."""

    code: ClassVar[str] = "INTERNAL_SERVER_ERROR"
    http_status: ClassVar[int] = 500
    prefix: ClassVar[str] = (
        ""  # the old server's "CODE: " before the text, where clients match on it
    )

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message, self.data = message, data

    @property
    def text(self) -> str:
        """The message as Letta's clients know it."""
        return f"{self.prefix}: {self.message}" if self.prefix else self.message

    @property
    def detail(self) -> Any:
        """What stands in the JSON body as `detail`."""
        return self.text


class InvalidArgument(SouveraineError):
    code = prefix = "INVALID_ARGUMENT"
    http_status = 400


class ValidationFailed(SouveraineError):
    code = "VALIDATION_FAILED"
    http_status = 422


class UnknownTool(InvalidArgument):
    """A tool is named that does not exist. The old server's text has no code before it (golden 119)."""

    code = "UNKNOWN_TOOL"
    prefix = ""


class Unauthorized(SouveraineError):
    code = "UNAUTHORIZED"
    http_status = 401


class Forbidden(SouveraineError):
    code = "FORBIDDEN"
    http_status = 403


class NotFound(SouveraineError):
    code = "NOT_FOUND"
    http_status = 404


class EditingRefused(SouveraineError):
    """A stored message was to be changed. The old server's text and status."""

    code = "EDITING_REFUSED"
    http_status = 405


class McpServerUnavailable(NotFound):
    """An MCP server cannot be asked. The old server answers 404 with an object (contract letta-api §7)."""

    code = "MCP_SERVER_UNAVAILABLE"

    @property
    def detail(self) -> Any:
        return {"code": "MCPServerUnavailable", "message": self.text, "error": self.text}


class Conflict(SouveraineError):
    code = prefix = "CONFLICT"
    http_status = 409


class UniqueViolation(Conflict):
    """Something of that name is there already. The old server's text, which has no code before it."""

    code = "UNIQUE_VIOLATION"
    prefix = ""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(
            f"A unique constraint was violated for {kind}. There is one with {what} already: change that one, or "
            "choose another."
        )


class ConversationBusy(Conflict):
    """A run is in progress. The text is matched by letta-code, so it stays verbatim."""

    code = "CONVERSATION_BUSY"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"Cannot send a new message: Another request (run_id={run_id}) is currently being processed "
            "for this conversation. Please wait for it to complete.",
            run_id=run_id,
            hint=f"Follow it with POST /v1/runs/{run_id}/stream, end it with POST …/cancel, or send with "
            '"when_busy": "queue" to be answered after it.',
        )


class QueueFull(Conflict):
    """As many messages as are allowed wait already."""

    code = "QUEUE_FULL"

    def __init__(self, waiting: int, limit: int) -> None:
        super().__init__(
            f"{waiting} messages wait for their turn in this conversation, and no more than {limit} may "
            "(SOUVERAINE_QUEUE_LIMIT). Wait until some are answered, or cancel them.",
            waiting=waiting,
            limit=limit,
        )


class PendingApproval(Conflict):
    """A tool call waits for a decision. The text is matched by letta-code, so it stays verbatim."""

    code = "PENDING_APPROVAL"

    def __init__(self, pending_request_id: str) -> None:
        super().__init__(
            "Cannot send a new message: The agent is waiting for approval on a tool call. Please approve or "
            "deny the pending request before continuing.",
            pending_request_id=pending_request_id,
        )

    @property
    def detail(self) -> Any:
        """An object, as the old server has it here (golden 46)."""
        return {"code": self.code, "message": self.text, **self.data}


class NothingPending(InvalidArgument):
    """A decision came, but no tool call waits for one. The text is matched by clients."""

    code = "NO_PENDING_APPROVAL"
    prefix = ""

    def __init__(self, why: str) -> None:
        super().__init__(
            "Cannot process approval response: No tool call is currently awaiting approval. " + why
        )


class InvalidToolCallIds(InvalidArgument):
    """A decision names other calls than those that wait. The text is matched by letta-code."""

    code = "INVALID_TOOL_CALL_IDS"
    prefix = ""

    def __init__(self, expected: list[str], received: list[str]) -> None:
        super().__init__(
            f"Invalid tool call IDs. Expected {expected}, but received {received}. "
            "Answer all pending calls in one message.",
            expected_tool_call_ids=expected,
        )


class ConcurrentUpdate(Conflict):
    code = "CONCURRENT_UPDATE"


class Expired(SouveraineError):
    code = prefix = "EXPIRED"
    http_status = 410


class PayloadTooLarge(SouveraineError):
    code = "PAYLOAD_TOO_LARGE"
    http_status = 413


class UnsupportedMediaType(SouveraineError):
    code = "UNSUPPORTED_MEDIA_TYPE"
    http_status = 415


class Unavailable(SouveraineError):
    code = "UNAVAILABLE"
    http_status = 503


PROVIDER_STATUS = {
    "llm_authentication": 401,
    "llm_insufficient_credits": 402,
    "llm_rate_limit": 429,
    "llm_timeout": 504,
    "llm_bad_request": 400,
    "llm_error": 500,
    "llm_empty_response": 500,
    "internal_error": 500,
    "context_window_overflow": 400,
    "context_window_overflow_in_system_prompt": 400,
}
PROVIDER_MESSAGES = {
    "llm_authentication": "Authentication failed with the LLM model provider.",
    "llm_insufficient_credits": "Insufficient credits with the LLM model provider.",
    "llm_rate_limit": "Rate limit exceeded for LLM model provider. Please wait before making another request.",
    "llm_timeout": "The LLM request timed out. Please try again.",
    "llm_bad_request": "The request to the LLM model provider was invalid.",
}


class ProviderError(SouveraineError):
    """The model's provider failed. `detail` keeps what it said; `is_transient` allows a retry.

    `error_type` is one of PROVIDER_STATUS' keys (contract letta-api §1.4, §4.3).
    """

    code = "PROVIDER_ERROR"

    def __init__(
        self,
        error_type: str,
        detail: str,
        *,
        is_transient: bool = False,
        stop_reason: str = "llm_api_error",
    ) -> None:
        super().__init__(
            PROVIDER_MESSAGES.get(error_type, "An error occurred with the LLM request.")
        )
        self.error_type, self.provider_detail = error_type, detail
        self.is_transient, self.stop_reason = is_transient, stop_reason

    @property
    def status(self) -> int:
        return PROVIDER_STATUS.get(self.error_type, 500)
