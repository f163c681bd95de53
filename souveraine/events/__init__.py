"""Redis streams as the event log of runs, and their readers and writers."""

from __future__ import annotations
