"""Rows to wire shapes: Letta frames, AgentState, Conversation, Run, Step. No queries that grow, no HTTP."""

from __future__ import annotations
