"""Benchmarks of a whole server on this machine: `make bench`, `make bench-start`."""

from __future__ import annotations
