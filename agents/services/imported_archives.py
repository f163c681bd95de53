"""The archival memory of an imported agent: one archive of its own, without asking any model meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.conf import settings

from agents.actor import Actor
from agents.models import Agent, AgentArchive, Archive, Passage, PassageTag
from agents.services.archives import NewPassage
from agents.services.embedding import change_model
from souveraine.errors import SouveraineError

logger = logging.getLogger(__name__)
BATCH = 500


def put_passages(actor: Actor, agent: Agent, new: Sequence[NewPassage]) -> Archive | None:
    """Give the agent its own archive with these passages; None without any. Call it in the import's transaction."""
    if not new:
        return None
    archive = Archive.objects.create(
        owner=actor.user,
        created_by=actor.user_id,
        last_updated_by=actor.user_id,
        name=f"{agent.name}'s Archive"[:255],
        description="Came with the agent's file",
    )
    AgentArchive.objects.create(agent=agent, archive=archive, is_own=True)
    rows = [
        Passage(
            archive=archive,
            created_by=actor.user_id,
            text=entry.text,
            tags=None if entry.tags is None else list(dict.fromkeys(entry.tags)),
            metadata=entry.metadata,
            **({"created_at": entry.created_at} if entry.created_at else {}),
        )
        for entry in new
    ]
    Passage.objects.bulk_create(rows, batch_size=BATCH)
    PassageTag.objects.bulk_create(
        (PassageTag(passage=row, tag=tag) for row in rows for tag in row.tags or ()),
        batch_size=BATCH,
    )
    return archive


def embed_later(actor: Actor, agent: Agent, archive: Archive) -> None:
    """Let a job embed the passages, with the agent's model or the server's; else they are found by their words."""
    for handle in (agent.embedding, settings.CONFIG["SOUVERAINE_EMBEDDING_MODEL"]):
        if handle:
            try:
                change_model(actor, archive, handle)
                return
            except SouveraineError as exc:
                logger.info("event=no_embedding_model model=%s error=%s", handle, exc.text)
