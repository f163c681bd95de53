"""Tell those who watch a conversation that it has something new: a run, or its end."""

from __future__ import annotations

import uuid

from souveraine.events.wakeups import wake


def announce(*ids: uuid.UUID) -> None:
    """Wake all who watch these conversations and agents, in every process, to look at the rows.

    Losing it loses nothing: they look by themselves at each ping.
    """
    wake(*map(str, ids))
