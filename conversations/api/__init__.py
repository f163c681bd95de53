"""The `/v1` surface: bodies, thin views, streams. What it says is decided in the contract, docs/api.md."""

from __future__ import annotations
