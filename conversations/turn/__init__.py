"""The turn engine (architecture §5). Runs in the worker only: LangGraph is never loaded in the web process."""

from __future__ import annotations
