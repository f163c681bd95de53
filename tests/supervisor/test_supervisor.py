from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from souveraine.supervisor import processes
from souveraine.supervisor import supervisor as module
from souveraine.supervisor.lock import acquire
from souveraine.supervisor.processes import GUARD, Console
from souveraine.supervisor.supervisor import GaveUp, Supervisor
from tests.supervisor.conftest import SpecMaker, wait_until

STAY = "import time; print('up', flush=True); time.sleep(60)"
# Says when it got SIGTERM, so that the order of stopping can be read from one file.
NOTE = """
import signal, sys, time
def stop(*_):
    time.sleep({delay})
    open("order", "a").write("{name} ")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("up", flush=True)
time.sleep(60)
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + STAY


def tick_until(running: Supervisor, condition: object, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "condition not reached in time"
        running.tick(0.02)


def test_a_dead_child_is_reported_and_started_again(
    supervisor: Supervisor, spec: SpecMaker, output: io.StringIO, deaths: list[tuple[str, int]]
) -> None:
    supervisor.start(spec("worker", STAY))
    first = supervisor.pids()["worker"]
    wait_until(lambda: "worker | up" in output.getvalue())
    os.kill(first, signal.SIGKILL)
    tick_until(supervisor, lambda: supervisor.pids().get("worker", first) != first)
    assert "worker ended (signal 9, SIGKILL); starting it again in 0.5 s." in output.getvalue()
    assert deaths == [("worker", first)]


def test_delay_doubles_to_a_limit_and_is_reset_by_health(
    supervisor: Supervisor, spec: SpecMaker, output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DELAY_SECONDS", 0.8)
    supervisor.is_healthy = True
    supervisor.start(spec("web", "import sys; sys.exit(3)"))
    tick_until(supervisor, lambda: output.getvalue().count("web ended") == 3)
    said = [line.split()[-2] for line in output.getvalue().splitlines()]
    assert said == ["0.5", "0.8", "0.8"]
    assert "(exit code 3)" in output.getvalue()
    monkeypatch.setattr(module, "HEALTHY_SECONDS", 0.0)
    tick_until(supervisor, lambda: output.getvalue().count("web ended") == 4)
    assert output.getvalue().splitlines()[-1].endswith("again in 0.5 s.")


def test_a_child_that_never_comes_up_ends_the_start(
    tmp_path: Path, console: Console, spec: SpecMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY_SECONDS", 0.01)
    with Supervisor(console, tmp_path, give_up_after=2) as running:
        running.start(spec("web", "import sys; sys.exit('broken')"))
        with pytest.raises(GaveUp, match=r"web ended 2 times.*exit code 1.*web\.log"):
            tick_until(running, lambda: False)


def test_children_stop_in_reverse_order_each_after_the_one_before(
    tmp_path: Path, console: Console, spec: SpecMaker, output: io.StringIO
) -> None:
    with Supervisor(console, tmp_path) as running:
        for name, delay in (("redis", 0), ("web", 0), ("worker", 0.3)):
            running.start(spec(name, NOTE.format(name=name, delay=delay)))
        wait_until(lambda: output.getvalue().count("| up") == 3)
    assert (tmp_path / "order").read_text() == "worker web redis "


def test_a_child_that_does_not_stop_is_killed_and_its_death_announced(
    tmp_path: Path, console: Console, spec: SpecMaker, output: io.StringIO
) -> None:
    deaths: list[str] = []
    with Supervisor(console, tmp_path, lambda name, pid: deaths.append(name)) as running:
        running.start(spec("worker", DEAF, stop_seconds=0.2))
        wait_until(lambda: "up" in output.getvalue())
    assert "worker did not stop in time" in output.getvalue()
    assert deaths == ["worker"]


def test_a_second_request_hurries(
    tmp_path: Path,
    console: Console,
    spec: SpecMaker,
    output: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HURRY_SECONDS", 0.1)
    with Supervisor(console, tmp_path) as running:
        running.start(spec("worker", DEAF, stop_seconds=60))
        wait_until(lambda: "up" in output.getvalue())
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        running.run()
        began = time.monotonic()
    assert time.monotonic() - began < 5


def test_handlers_are_given_back(tmp_path: Path, console: Console) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    with Supervisor(console, tmp_path) as running:
        running.request_stop()
        running.run()
    after = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    assert after == before


def test_one_off_process_is_reaped_and_its_failure_said(
    supervisor: Supervisor, spec: SpecMaker, output: io.StringIO
) -> None:
    supervisor.run_once(spec("release", "import sys; sys.exit(4)"))
    tick_until(supervisor, lambda: "release failed (exit code 4)." in output.getvalue())
    assert supervisor.pids() == {}


def test_processes_that_a_dead_child_leaves_are_ended(
    supervisor: Supervisor, spec: SpecMaker, output: io.StringIO
) -> None:
    code = (
        "import subprocess, sys;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print('grandchild', p.pid, flush=True); sys.exit(1)"
    )
    supervisor.start(spec("worker", code))
    tick_until(supervisor, lambda: "worker ended" in output.getvalue())
    grandchild = int(output.getvalue().split("grandchild ")[1].split()[0])
    wait_until(lambda: not Path(f"/proc/{grandchild}/exe").exists())


def test_output_goes_to_terminal_and_log(
    supervisor: Supervisor, spec: SpecMaker, output: io.StringIO, tmp_path: Path
) -> None:
    supervisor.start(spec("web", "print('Grüße', flush=True); " + STAY))
    wait_until(lambda: "web    | up" in output.getvalue())
    assert output.getvalue() == "web    | Grüße\nweb    | up\n"
    assert (tmp_path / "web.log").read_text() == "Grüße\nup\n"


def test_a_line_without_end_does_not_block_the_child(
    supervisor: Supervisor, spec: SpecMaker, output: io.StringIO, tmp_path: Path
) -> None:
    supervisor.start(spec("web", "print('x' * 300_000, end=''); print(); " + STAY))
    wait_until(lambda: "web    | up" in output.getvalue())
    assert (tmp_path / "web.log").stat().st_size == 300_001 + len("up\n")


def test_a_log_over_the_limit_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    processes.rotate(log, 10)
    log.write_text("x" * 10)
    processes.rotate(log, 10)
    assert log.exists()
    log.write_text("y" * 11)
    processes.rotate(log, 10)
    assert not log.exists()
    assert (tmp_path / "web.log.1").read_text() == "y" * 11


def test_a_closed_terminal_is_no_error() -> None:
    stream = io.StringIO()
    stream.close()
    Console(stream).say("nobody reads this")


SUPERVISE = """
import os, sys
from pathlib import Path
from souveraine.supervisor.lock import acquire
from souveraine.supervisor.processes import ChildSpec, Console
from souveraine.supervisor.supervisor import Supervisor
here = Path(sys.argv[1])
lock = acquire(here)
with Supervisor(Console(sys.stdout), here) as running:
    for name in ("redis", "worker"):
        code = "import time; print('up', flush=True); time.sleep(60)"
        command = (sys.executable, "-c", code)
        running.start(ChildSpec(name, command, dict(os.environ), here, (lock.fd,)))
    lock.announce("", running.pids())
    running.run()
"""


def start_supervisor(here: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, str(here)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert [process.stdout.readline()[-3:] for _ in range(2)] == ["up\n", "up\n"]
    return process


def test_children_of_a_killed_supervisor_end_and_the_next_one_starts(tmp_path: Path) -> None:
    process = start_supervisor(tmp_path)
    process.kill()
    process.wait()
    began = time.monotonic()
    lock = acquire(tmp_path)
    # Only the children's own end frees the lock this soon; killing them comes after the grace.
    assert time.monotonic() - began < 4
    assert set(lock.previous.children) == {"redis", "worker"}
    lock.close()
    assert process.stdout
    process.stdout.close()


def test_sigterm_stops_a_supervisor_with_exit_code_zero(tmp_path: Path) -> None:
    process = start_supervisor(tmp_path)
    process.terminate()
    assert process.wait(timeout=10) == 0
    assert process.stdout
    process.stdout.close()


SPAWN = """
import os, subprocess, sys, time
guard = [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), "--poll", "--"]
code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
child = subprocess.Popen([*guard, sys.executable, "-c", code])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_where_the_kernel_cannot_tell_a_watcher_does() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SPAWN, str(GUARD)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    started, itself = int(process.stdout.readline()), int(process.stdout.readline())
    assert started == itself
    process.kill()
    process.wait()
    wait_until(lambda: not Path(f"/proc/{itself}/exe").exists(), 5)
    process.stdout.close()


def test_a_call_from_another_thread_wakes_the_loop_and_runs_in_the_main_thread(
    supervisor: Supervisor,
) -> None:
    threads: list[threading.Thread] = []

    def call() -> None:
        threads.append(threading.current_thread())
        supervisor.request_stop()

    threading.Timer(0.1, supervisor.call_soon, [call]).start()
    supervisor.run()
    assert threads == [threading.main_thread()]


def test_at_the_stop_optional_helpers_are_ended_and_the_others_waited_for(
    tmp_path: Path, console: Console, spec: SpecMaker, output: io.StringIO
) -> None:
    done = "import time; time.sleep(0.5); open('done', 'w').close()"
    began = time.monotonic()
    with Supervisor(console, tmp_path) as running:
        running.run_once(spec("greeting", STAY), seconds=60, is_optional=True)
        running.run_once(spec("release", done))
    assert (tmp_path / "done").exists()
    assert time.monotonic() - began < 10
