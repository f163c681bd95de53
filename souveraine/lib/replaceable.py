"""A seam: one place that says which implementation is used, so that tests replace it without patching."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Replaceable(Generic[T]):
    """Calling it gives the current implementation: the override, else what `factory` makes (once)."""

    def __init__(self, factory: Callable[[], T]) -> None:
        self._factory = factory
        self._default: T | None = None
        self._override: T | None = None
        self._lock = threading.Lock()

    def __call__(self) -> T:
        if self._override is not None:
            return self._override
        with self._lock:
            if self._default is None:
                self._default = self._factory()
            return self._default

    @contextmanager
    def override(self, stub: T) -> Iterator[T]:
        """Use `stub` inside the block (process-wide)."""
        previous, self._override = self._override, stub
        try:
            yield stub
        finally:
            self._override = previous
