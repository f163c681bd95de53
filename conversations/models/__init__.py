"""What is said, as rows: conversations, messages, runs, steps, the tool-call journal, checkpoints."""

from __future__ import annotations

from conversations.models.callback import RunCallback
from conversations.models.checkpoint import Checkpoint, CheckpointWrite
from conversations.models.conversation import Conversation, Message
from conversations.models.run import Run, RunStatus, Step, ToolCall
from conversations.models.schedule import Schedule
from conversations.models.vector import MessageVector

__all__ = [
    "Checkpoint",
    "CheckpointWrite",
    "Conversation",
    "Message",
    "MessageVector",
    "Run",
    "RunCallback",
    "RunStatus",
    "Schedule",
    "Step",
    "ToolCall",
]
