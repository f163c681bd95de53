"""Many writers, and writers that are killed: what was acknowledged is there."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import memfs
from memfs import MemoryRepository
from memfs.locking import RepositoryLock
from souveraine.errors import Unavailable
from tests.memfs.conftest import AGENT, assert_sound, run_git

TOP = str(Path(memfs.__file__).resolve().parent.parent)

WRITERS = """
import sys, threading
from pathlib import Path
from memfs import MemoryRepository, agent_author
root, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def work(thread):
    memory = MemoryRepository(root)
    for number in range(count):
        memory.append("journal/shared.md", f"{name}-{thread}-{number}\\n", agent_author("agent-1"))
        memory.write(f"archive/{name}-{thread}-{number}.md", "x", agent_author("agent-1"))

threads = [threading.Thread(target=work, args=(t,)) for t in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
"""

LOOP = """
import sys
from pathlib import Path
from memfs import MemoryRepository, agent_author
memory, start = MemoryRepository(Path(sys.argv[1])), int(sys.argv[2])
for number in range(start, start + 100000):
    memory.append("journal/log.md", f"{number}\\n", agent_author("agent-1"))
    print(number, flush=True)
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE, text=True)


def test_two_processes_with_threads_and_git_lose_nothing(memory: MemoryRepository) -> None:
    count = 8
    writers = [start(WRITERS, str(memory.root), name, str(count)) for name in ("a", "b")]
    for number in range(4):
        run_git(memory.work_tree, "commit", "--allow-empty", "-q", "-m", f"m{number}", check=False)
    assert [writer.wait(90) for writer in writers] == [0, 0]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.close()
    expected = {f"{n}-{t}-{i}" for n in "ab" for t in range(3) for i in range(count)}
    lines = memory.read("journal/shared.md").split()
    assert len(lines) == len(expected)
    assert set(lines) == expected
    assert {e.path[8:-3] for e in memory.list("archive/")} == expected
    memory.sync()
    assert_sound(memory)


def test_kill_in_a_write_loop_keeps_every_acknowledged_write(memory: MemoryRepository) -> None:
    acknowledged: list[str] = []
    for turn in range(10):
        with start(LOOP, str(memory.root), str(turn * 1000)) as writer:
            assert writer.stdout is not None
            for _ in range(turn % 3 + 1):
                acknowledged.append(writer.stdout.readline().strip())
            writer.kill()
            acknowledged += writer.stdout.read().split("\n")[:-1]
        lines = memory.read("journal/log.md").split("\n")[:-1]
        assert [line for line in acknowledged if line not in lines] == []
        assert len(lines) == len(set(lines))
        if turn % 2:
            memory.repair()
            assert_sound(memory)
    memory.append("journal/log.md", "after\n", AGENT)
    assert {c.author_kind for c in memory.log(limit=1000)} == {"agent"}
    memory.sync()
    assert_sound(memory)


def test_a_thread_that_holds_the_memory_may_write_and_others_wait(memory: MemoryRepository) -> None:
    written = threading.Event()

    def other() -> None:
        MemoryRepository(memory.root).write("archive/other.md", "x", AGENT)
        written.set()

    thread = threading.Thread(target=other)
    with memory.exclusive():
        thread.start()
        memory.write("archive/mine.md", "x", AGENT)
        assert not written.wait(0.1)
    thread.join(10)
    assert written.is_set()
    assert [c.message for c in memory.log()][:2] == [
        "Update archive/other.md", "Update archive/mine.md",
    ]  # fmt: skip


def test_waiting_for_the_lock_ends(memory: MemoryRepository) -> None:
    failures: list[Exception] = []

    def other() -> None:
        try:
            with memory.exclusive(timeout_seconds=0.05):
                pass
        except Unavailable as error:
            failures.append(error)

    with memory.exclusive():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)
    assert len(failures) == 1


def test_another_process_is_waited_for_and_not_for_ever(memory: MemoryRepository) -> None:
    code = (
        "import fcntl, sys\nf = open(sys.argv[1])\nfcntl.flock(f, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    path = memory.git_dir / "memfs/lock"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(Unavailable, match="locked by another"), RepositoryLock(path).held(0.05):
            pass
    memory.write("archive/a.md", "a", AGENT)
