from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from souveraine.supervisor.commands import DRAIN_MARGIN_SECONDS, ServeOptions
from souveraine.supervisor.server import Plan

OPTIONS = ServeOptions(Path("/base"), Path("/data dir"), "::1", 8283, 4, 30.0)


def test_the_plan_survives_the_command_line_and_holds_no_secret() -> None:
    plan = Plan(OPTIONS, "/bin/redis-server", 3, 4, 0)
    assert Plan.from_json(plan.to_json()) == plan
    assert "url" not in plan.to_json().lower()


def test_the_worker_has_its_turns_time_and_a_margin_before_it_is_killed() -> None:
    spec = OPTIONS.worker({}, 3)
    assert spec.stop_seconds == 30.0 + DRAIN_MARGIN_SECONDS
    assert spec.inherit == (3,)


def test_children_get_what_serve_decided() -> None:
    inherited = {"SOUVERAINE_PORT": "1", "REDIS_URL": "", "OPENAI_API_KEY": "k"}
    environment = OPTIONS.environment("unix:///run/x.sock", inherited)
    assert environment["REDIS_URL"] == "unix:///run/x.sock"
    assert environment["SOUVERAINE_PORT"] == "8283"
    assert environment["SOUVERAINE_DATA_DIR"] == "/data dir"
    assert environment["OPENAI_API_KEY"] == "k"


def test_the_supervisor_stays_light() -> None:
    code = (
        "import sys, souveraine.supervisor.__main__;"
        "print(sorted({'django', 'celery', 'redis', 'twisted', 'httpx'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
