"""From bytes to one form: {"agents", "groups", "blocks", "tools", …}, whatever the file looked like.

What is in use: the present form; the same once more inside of a JSON string (what some clients store); the
single agent of 2025; and older names of fields. Nothing here asks the database.
"""

from __future__ import annotations

import json
import re
from typing import Any

from conversations.agent_files.single_agent import from_single_agent, is_single_agent
from souveraine.api.parsing import TOO_DEEP, is_too_deep
from souveraine.errors import InvalidArgument
from souveraine.lib.text import clean_json

Entity = dict[str, Any]
KINDS = ("agents", "groups", "blocks", "files", "sources", "tools", "mcp_servers", "skills")
WRAPPERS = 3  # how often a document may stand inside of a string
_SUSPECT = re.compile(rb"\\u(0000|[dD][89a-fA-F])|\xed[\xa0-\xbf]|\x00")


def read_document(raw: bytes) -> dict[str, list[Entity]]:
    """Return the entities of the file by kind; a kind that is missing is an empty list.

    Raises InvalidArgument. Characters that cannot be stored are replaced, as in what a model says.
    """
    document = _parse(raw)
    for _ in range(WRAPPERS):
        if not isinstance(document, str):
            break
        document = _parse(document.encode())
    if not isinstance(document, dict):
        raise _corrupted("it is no JSON object")
    if is_too_deep(document):
        raise _corrupted(TOO_DEEP)
    if _SUSPECT.search(raw):
        document = clean_json(document)
    if is_single_agent(document):
        document = from_single_agent(document)
    found = {kind: _entities(document, kind) for kind in KINDS}
    if not found["agents"]:
        raise _corrupted("it has no agents")
    return found


def listed(value: Any) -> list[Any]:
    """Return a value that should be a list, else an empty one."""
    return value if isinstance(value, list) else []


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8-sig"), parse_constant=lambda name: None)
    except UnicodeDecodeError:
        raise _corrupted("it is not UTF-8") from None
    except RecursionError:
        raise _corrupted(TOO_DEEP) from None
    except ValueError as exc:
        raise _corrupted(f"it is no JSON ({str(exc)[:100]})") from None


def _entities(document: dict[str, Any], kind: str) -> list[Entity]:
    given = document.get(kind)
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise _corrupted(f"`{kind}` is no list of objects")
    return given


def _corrupted(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"Corrupted agent file format: {why}. Send the file as `GET /v1/agents/{{id}}/export` wrote it."
    )
