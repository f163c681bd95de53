"""Packing a repository with git itself: each commit adds about five small files otherwise.

Optional: without a git program nothing breaks, the repository only takes more room.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from pathlib import Path

logger = logging.getLogger(__name__)

GC_TIMEOUT_SECONDS = 300.0  # a memory of 10,000 commits takes a few seconds


def pack(git_dir: Path, *, force: bool = False) -> bool:
    """Let git pack the objects if there are many (`gc.auto`) or with `force`; tell if it ran well.

    Safe beside writers: git removes only what has been unreachable for two weeks. Killed in
    mid-way it leaves files that the next run removes.
    """
    git = shutil.which("git")
    if git is None:
        logger.info("No git program was found, so %s stays unpacked", git_dir)
        return False
    command = [git, "-c", "core.hooksPath=/dev/null", "-c", "gc.autoDetach=false"]
    command += [f"--git-dir={git_dir}", "gc", "--quiet", *([] if force else ["--auto"])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean = kept | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        done = subprocess.run(
            command, env=clean, capture_output=True, text=True, timeout=GC_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        logger.warning("Packing %s took more than %g s", git_dir, GC_TIMEOUT_SECONDS)
        return False
    if done.returncode:
        logger.warning("Packing %s failed: %s", git_dir, done.stderr.strip()[:500])
    return done.returncode == 0
