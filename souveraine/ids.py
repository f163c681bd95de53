"""Ids on the wire: `<prefix>-<uuid4>`; bare UUIDs are accepted on lookup (contract letta-api §1.3)."""

from __future__ import annotations

import re
import uuid

_UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")

AGENT = "agent"
ARCHIVE = "archive"
BLOCK = "block"
CONVERSATION = "conv"
FILE = "file"
FILE_AGENT = "file_agent"
FOLDER = "source"
GROUP = "group"
IDENTITY = "identity"
JOB = "job"
MCP_SERVER = "mcp_server"
MESSAGE = "message"
PASSAGE = "passage"
PROVIDER = "provider"
RUN = "run"
SCHEDULE = "schedule"
STEP = "step"
TOOL = "tool"
USER = "user"


class MalformedId(ValueError):
    """The text is not an id of the expected kind."""

    def __init__(self, prefix: str, text: str) -> None:
        self.prefix, self.text = prefix, text
        super().__init__(f"{text!r} is not a {prefix} id")


def pattern(prefix: str) -> str:
    """Return the regular expression that the old server shows in its 422 bodies."""
    return (
        f"^{prefix}-[0-9a-f]{{8}}-[0-9a-f]{{4}}-4[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}$"
    )


def make(prefix: str, value: uuid.UUID | None) -> str | None:
    """Write `value` with its prefix; None stays None."""
    return None if value is None else f"{prefix}-{value}"


def parse(prefix: str, text: str) -> uuid.UUID:
    """Read `<prefix>-<uuid4>` or a bare uuid4. Raises MalformedId."""
    bare = text.removeprefix(f"{prefix}-") if isinstance(text, str) else ""
    if not _UUID.fullmatch(bare):
        raise MalformedId(prefix, str(text))
    return uuid.UUID(bare)
