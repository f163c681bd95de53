"""Hand a run to the workers."""

from __future__ import annotations

from souveraine.lib.task_queue import TaskQueue

TASK = "conversations.run_turn"
_queue = TaskQueue(TASK)
transport, enqueue, enqueue_all = _queue.transport, _queue.enqueue, _queue.enqueue_all
