"""Folders of files that agents can read. A folder's passages lie in an archive of its own, which is searched
as any other but not listed.
"""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.agent import Agent
from agents.models.archive import Archive
from agents.models.user import User


class Folder(models.Model):
    """A folder; on the wire `source-…`, as Letta has it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="folders")
    created_by = models.UUIDField(null=True)
    last_updated_by = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    name = models.CharField(max_length=255)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  null and "" differ on the wire
    instructions = models.TextField(null=True, blank=True)  # noqa: DJ001
    metadata = models.JSONField(null=True, blank=True)
    archive = models.OneToOneField(Archive, on_delete=models.CASCADE, related_name="folder")
    agents = models.ManyToManyField(Agent, through="AgentFolder", related_name="folders")

    class Meta:
        indexes = [models.Index(fields=["owner", "created_at", "id"], name="folder_page")]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="folder_name_once")]

    def __str__(self) -> str:
        return f"{self.name} (source-{self.id})"


class AgentFolder(models.Model):
    """A folder attached to an agent."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="folder_rows")
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="agent_rows")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "folder"], name="agent_folder_once")
        ]

    def __str__(self) -> str:
        return f"agent-{self.agent_id} source-{self.folder_id}"


class FileStatus(models.TextChoices):
    """How far a file has been read; Letta's names."""

    PENDING = "pending"
    PARSING = "parsing"
    EMBEDDING = "embedding"
    COMPLETED = "completed"
    ERROR = "error"


class File(models.Model):
    """One uploaded file. Its bytes are `files/<folder>/<file>` of the data directory."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="files")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    name = models.CharField(max_length=255)
    original_name = models.CharField(max_length=255)
    media_type = models.CharField(max_length=255)
    size_bytes = models.BigIntegerField()
    status = models.CharField(max_length=12, choices=FileStatus.choices, default=FileStatus.PENDING)
    error = models.TextField(blank=True)
    total_chunks = models.PositiveIntegerField(null=True, blank=True)
    chunks_embedded = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["folder", "created_at", "id"], name="file_page")]
        constraints = [models.UniqueConstraint(fields=["folder", "name"], name="file_name_once")]

    def __str__(self) -> str:
        return f"{self.name} (file-{self.id})"


class FileContent(models.Model):
    """The text of a file, apart from its row, so that lists do not load it."""

    file = models.OneToOneField(
        File, on_delete=models.CASCADE, primary_key=True, related_name="content"
    )
    text = models.TextField()

    def __str__(self) -> str:
        return f"file-{self.file_id}"


class AgentFile(models.Model):
    """A file as one agent has it: closed, or open with the lines `start_line` to `end_line` (from 1) in view."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="file_rows")
    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="agent_rows")
    created_at = models.DateTimeField(default=timezone.now)
    is_open = models.BooleanField(default=False)
    visible_content = models.TextField(null=True, blank=True)  # noqa: DJ001  null: never opened
    start_line = models.PositiveIntegerField(null=True, blank=True)
    end_line = models.PositiveIntegerField(null=True, blank=True)
    last_accessed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["agent", "created_at", "id"], name="agent_file_page")]
        constraints = [
            models.UniqueConstraint(fields=["agent", "file"], name="agent_file_once"),
        ]

    def __str__(self) -> str:
        return f"agent-{self.agent_id} file-{self.file_id}"
