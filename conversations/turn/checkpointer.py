"""LangGraph's checkpointer on the ORM: same database, and every write checks the run's fence (architecture §5.4).

A stalled worker whose lease has moved gets `Fenced` instead of overwriting the new owner's state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)

from conversations.models import Checkpoint as CheckpointRow
from conversations.models import CheckpointWrite, Run
from conversations.services.runs import fenced
from conversations.turn.database import run_db
from souveraine.lib.crash_points import reached
from souveraine.lib.durability import without_disk_sync

RUN_KEY = "souveraine_run"  # not `run_id`: LangGraph takes a repeated one for a resume


class OrmCheckpointer(BaseCheckpointSaver[str]):
    """Checkpoints of all threads. `configurable[RUN_KEY]` holds the Run whose fence is checked."""

    @contextmanager
    def _write(self, config: RunnableConfig) -> Iterator[None]:
        run: Run | None = config["configurable"].get(RUN_KEY)
        with without_disk_sync(), transaction.atomic() if run is None else fenced(run):
            yield

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; the same id again replaces it. Raises Fenced."""
        where = config["configurable"]
        kind, data = self.serde.dumps_typed(checkpoint)
        public = {**config, "configurable": {k: v for k, v in where.items() if k != RUN_KEY}}
        notes = dict(get_checkpoint_metadata(public, metadata))  # type: ignore[arg-type]
        run: Run | None = where.get(RUN_KEY)
        if run is not None:
            notes["souveraine_run"] = str(run.pk)
        row = CheckpointRow(
            thread=where["thread_id"],
            namespace=where.get("checkpoint_ns", ""),
            checkpoint_id=checkpoint["id"],
            parent_id=where.get("checkpoint_id") or "",
            kind=kind,
            data=data,
            metadata=notes,
        )
        reached("before_checkpoint")
        with self._write(config):
            CheckpointRow.objects.bulk_create(
                [row],
                update_conflicts=True,
                unique_fields=["thread", "namespace", "checkpoint_id"],
                update_fields=["parent_id", "kind", "data", "metadata"],
            )
        reached("after_checkpoint")
        return _config(row.thread, row.namespace, row.checkpoint_id)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store a task's writes; the same index again replaces it. Raises Fenced."""
        where = config["configurable"]
        rows = []
        for index, (channel, value) in enumerate(writes):
            kind, data = self.serde.dumps_typed(value)
            rows.append(
                CheckpointWrite(
                    thread=where["thread_id"],
                    namespace=where.get("checkpoint_ns", ""),
                    checkpoint_id=where["checkpoint_id"],
                    task_id=task_id,
                    task_path=task_path,
                    index=WRITES_IDX_MAP.get(channel, index),
                    channel=channel,
                    kind=kind,
                    data=data,
                )
            )
        with self._write(config):
            CheckpointWrite.objects.bulk_create(
                rows,
                update_conflicts=True,
                unique_fields=["thread", "namespace", "checkpoint_id", "task_id", "index"],
                update_fields=["task_path", "channel", "kind", "data"],
            )

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the named checkpoint, or the thread's newest; None for a run's graph.

        That one begins with a state derived from the rows (decision 0002), so reading would be for nothing.
        """
        where = config["configurable"]
        if RUN_KEY in where:
            return None
        rows = CheckpointRow.objects.filter(
            thread=where["thread_id"], namespace=where.get("checkpoint_ns", "")
        )
        if where.get("checkpoint_id"):
            rows = rows.filter(checkpoint_id=where["checkpoint_id"])
        row = rows.order_by("-checkpoint_id").first()
        return self._tuple(row) if row else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield a thread's checkpoints, newest first."""
        rows = CheckpointRow.objects.all()
        if config is not None:
            where = config["configurable"]
            rows = rows.filter(thread=where["thread_id"])
            if "checkpoint_ns" in where:
                rows = rows.filter(namespace=where["checkpoint_ns"])
            if where.get("checkpoint_id"):
                rows = rows.filter(checkpoint_id=where["checkpoint_id"])
        if before is not None and before["configurable"].get("checkpoint_id"):
            rows = rows.filter(checkpoint_id__lt=before["configurable"]["checkpoint_id"])
        for key, value in (filter or {}).items():
            rows = rows.filter(**{f"metadata__{key}": value})
        for row in rows.order_by("-checkpoint_id")[:limit]:
            yield self._tuple(row)

    def delete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        with transaction.atomic():
            CheckpointRow.objects.filter(thread=thread_id).delete()
            CheckpointWrite.objects.filter(thread=thread_id).delete()

    def _tuple(self, row: CheckpointRow) -> CheckpointTuple:
        writes = CheckpointWrite.objects.filter(
            thread=row.thread, namespace=row.namespace, checkpoint_id=row.checkpoint_id
        ).order_by("task_id", "index")
        return CheckpointTuple(
            _config(row.thread, row.namespace, row.checkpoint_id),
            self.serde.loads_typed((row.kind, bytes(row.data))),
            row.metadata,
            _config(row.thread, row.namespace, row.parent_id) if row.parent_id else None,
            [
                (w.task_id, w.channel, self.serde.loads_typed((w.kind, bytes(w.data))))
                for w in writes
            ],
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint as `put` does."""
        return await run_db(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store writes as `put_writes` does."""
        await run_db(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read as `get_tuple` does."""
        return None if RUN_KEY in config["configurable"] else await run_db(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield as `list` does."""
        found = await run_db(
            lambda: [*self.list(config, filter=filter, before=before, limit=limit)]
        )
        for item in found:
            yield item

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete as `delete_thread` does."""
        await run_db(self.delete_thread, thread_id)


def _config(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }
