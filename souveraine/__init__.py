"""Wiring and shared frame of the Souveraine server: settings, errors, events, supervisor, API frame."""

from __future__ import annotations

__version__ = "0.1.0"
