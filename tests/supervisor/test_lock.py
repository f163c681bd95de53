from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from souveraine.supervisor.lock import AlreadyServing, acquire
from tests.supervisor.conftest import wait_until

HOLD = """
import sys, time
from pathlib import Path
from souveraine.supervisor.lock import acquire
lock = acquire(Path(sys.argv[1]), "http://127.0.0.1:1")
print("held", flush=True)
time.sleep(60)
"""
# A supervisor that leaves a child behind which ignores every request to end.
LEAVE_ORPHAN = """
import subprocess, sys, time
from pathlib import Path
from souveraine.supervisor.lock import acquire
lock = acquire(Path(sys.argv[1]))
orphan = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(float(%r))" % sys.argv[2]],
    pass_fds=[lock.fd], stdout=subprocess.DEVNULL)
lock.announce("", {"worker": orphan.pid})
print(orphan.pid, flush=True)
time.sleep(60)
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()


def test_second_serve_is_refused_at_once_with_pid_and_url(tmp_path: Path) -> None:
    first = start(HOLD, tmp_path)
    try:
        assert line_of(first) == "held"
        began = time.monotonic()
        with pytest.raises(AlreadyServing, match=rf"pid {first.pid}\) at http://127.0.0.1:1\b"):
            acquire(tmp_path)
        assert time.monotonic() - began < 2
        assert first.poll() is None
    finally:
        end(first)


def test_lock_of_a_killed_process_is_taken_over_with_what_it_left(tmp_path: Path) -> None:
    first = start(HOLD, tmp_path)
    assert line_of(first) == "held"
    end(first)
    lock = acquire(tmp_path)
    assert lock.previous.pid == first.pid
    assert lock.holder.pid == os.getpid()
    lock.close()


def test_clean_end_leaves_nothing_and_close_works_twice(tmp_path: Path) -> None:
    lock = acquire(tmp_path)
    lock.announce("http://127.0.0.1:1", {"worker": 123456})
    lock.close()
    lock.close()
    again = acquire(tmp_path)
    assert again.previous.pid == 0
    assert again.previous.children == {}
    again.close()


def test_orphans_are_waited_for(tmp_path: Path) -> None:
    supervisor = start(LEAVE_ORPHAN, tmp_path, 1.0)
    orphan = int(line_of(supervisor))
    end(supervisor)
    lock = acquire(tmp_path, grace_seconds=5)
    assert not Path(f"/proc/{orphan}/exe").exists()
    assert lock.previous.children == {"worker": orphan}
    lock.close()


def test_orphans_that_stay_are_killed(tmp_path: Path) -> None:
    supervisor = start(LEAVE_ORPHAN, tmp_path, 60)
    orphan = int(line_of(supervisor))
    end(supervisor)
    acquire(tmp_path, grace_seconds=0.2).close()
    with pytest.raises(ProcessLookupError):
        wait_until(lambda: os.kill(orphan, 0))


def test_a_recorded_pid_that_belongs_to_a_stranger_is_left_alone(tmp_path: Path) -> None:
    stranger = start("print('up', flush=True); import time; time.sleep(60)")
    supervisor = start(LEAVE_ORPHAN, tmp_path, 1.5)
    try:
        line_of(stranger)
        line_of(supervisor)
        end(supervisor)
        record = {"pid": stranger.pid, "url": "", "children": {"worker": stranger.pid}}
        (tmp_path / "serve.lock").write_text(json.dumps(record))
        acquire(tmp_path, grace_seconds=0.2).close()
        assert stranger.poll() is None
    finally:
        stranger.send_signal(signal.SIGTERM)
        end(stranger)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "12\n"])
def test_unreadable_content_of_a_free_lock_is_no_hindrance(tmp_path: Path, content: str) -> None:
    (tmp_path / "serve.lock").write_text(content)
    lock = acquire(tmp_path)
    assert lock.previous.pid == 0
    lock.close()
