"""What an agent is, as rows. Truths and copies: architecture §4."""

from __future__ import annotations

from agents.models.agent import Agent, AgentSecret, AgentTag, default_souveraine
from agents.models.approval import RememberedDecision
from agents.models.archive import AgentArchive, Archive, Passage, PassageTag
from agents.models.block import AgentBlock, Block
from agents.models.folder import (
    AgentFile,
    AgentFolder,
    File,
    FileContent,
    FileStatus,
    Folder,
)
from agents.models.group import Group, GroupAgent
from agents.models.identity import Identity
from agents.models.job import Job, JobStatus
from agents.models.mcp_server import McpServer
from agents.models.provider import Provider
from agents.models.tool import AgentTool, Tool
from agents.models.user import ApiKey, User

__all__ = [
    "Agent",
    "AgentArchive",
    "AgentBlock",
    "AgentFile",
    "AgentFolder",
    "AgentSecret",
    "AgentTag",
    "AgentTool",
    "ApiKey",
    "Archive",
    "Block",
    "File",
    "FileContent",
    "FileStatus",
    "Folder",
    "Group",
    "GroupAgent",
    "Identity",
    "Job",
    "JobStatus",
    "McpServer",
    "Passage",
    "PassageTag",
    "Provider",
    "RememberedDecision",
    "Tool",
    "User",
    "default_souveraine",
]
