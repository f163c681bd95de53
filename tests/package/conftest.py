"""Everything in this folder is e2e: it builds the wheel and starts what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(240))
