"""Which rows give which wire messages, so that a list of some types is cut behind the choice, not before.

The old server cut first: a page of nothing else was empty, and the SDKs' pagers ended there.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q

from conversations.models import Message

_Role = Message.Role
_CALLS = Q(role=_Role.ASSISTANT) & ~Q(tool_calls=[])
_ROWS = {
    "system_message": Q(role=_Role.SYSTEM),
    "user_message": Q(role=_Role.USER),
    "assistant_message": Q(role=_Role.ASSISTANT) & (~Q(text="") | Q(content__isnull=False)),
    "reasoning_message": Q(role=_Role.ASSISTANT) & ~Q(reasoning=""),
    "tool_call_message": _CALLS,
    "approval_request_message": _CALLS,
    "tool_return_message": Q(role=_Role.TOOL),
    "approval_response_message": Q(role=_Role.APPROVAL),
    "summary_message": Q(role=_Role.SUMMARY),
}


def rows_with(types: Collection[str] | None) -> Q:
    """Return the condition for rows that can give one of the types: all when none is named, none for unknown ones."""
    if not types:
        return Q()
    found = Q(pk__in=[])
    for name in types:
        if name in _ROWS:
            found |= _ROWS[name]
    return found
