"""The wheel: what is in it, and that `souveraine` works from an installed copy, far from a checkout.

The copy reuses the requirements of the environment that runs the tests, so nothing is fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from souveraine import __version__
from tests.e2e.conftest import START_SECONDS, free_port

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agents", "consciousness", "conversations", "memfs", "souveraine")
NOT_SHIPPED = {".pyc", ".pyo"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: Any) -> Path:
    """The wheel, built from what git would give to somebody else (and what is new here)."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: there is nothing to build from")
    pytest.importorskip("hatchling", reason="hatchling builds the wheel (requirements-dev.lock)")
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():  # not if deleted, but still in the index
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: Any) -> Path:
    """A folder with the installed copy; `bin/souveraine` is its command."""
    target = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--no-deps", "--no-index", "--target", str(target), str(wheel)),
        ],
        check=True,
        capture_output=True,
    )
    return target


def environment(installed: Path, data_dir: Path, **settings: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in ("HOME", "LANG", "TMPDIR")}
    return {
        **kept,
        "PATH": f"{installed / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(installed),
        "SOUVERAINE_DATA_DIR": str(data_dir),
        "SOUVERAINE_DEMO_MODEL": "off",
        "SOUVERAINE_REDIS_SERVER": "bundled",
        "OLLAMA_BASE_URL": "http://127.0.0.1:9",
        **settings,
    }


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["souveraine", *arguments],
        cwd=folder,
        env=environment(installed, folder / "data"),
        executable=str(installed / "bin" / "souveraine"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_everything_that_the_code_reads_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in NOT_SHIPPED
    }
    assert wanted - names == set()
    pages = {p.relative_to(ROOT).as_posix() for p in (ROOT / "templates").rglob("*") if p.is_file()}
    assert {f"souveraine/{page}" for page in pages} - names == set()
    for kind in ("prompts/system.md", "append.lua", "migrations/0001_initial.py", "py.typed"):
        assert any(name.endswith(kind) for name in names), kind


def test_nothing_else_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {*PACKAGES, f"souveraine-{__version__}.dist-info"}


def test_the_version_has_one_place() -> None:
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released[:1] in ([], [__version__])
    assert f'"{__version__}"' not in (ROOT / "pyproject.toml").read_text()


def test_the_command_is_manage_py(installed: Path, tmp_path: Path) -> None:
    assert run(installed, tmp_path, "version").stdout == f"souveraine {__version__}\n"
    done = run(installed, tmp_path, "check")
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout
    done = run(installed, tmp_path, "createkey", "--user", "nobody")
    assert done.returncode == 1


@pytest.fixture
def serve(installed: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The running server's URL and log; it is stopped at the end."""
    port, log = free_port(), tmp_path / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["souveraine", "serve"],
            executable=str(installed / "bin" / "souveraine"),
            cwd=tmp_path,
            env=environment(installed, tmp_path / "data", SOUVERAINE_PORT=str(port)),
            stdout=output,
            stderr=output,
        )
    deadline = time.monotonic() + START_SECONDS
    while "Ctrl-C stops the server." not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}", log
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0, log.read_text()


def test_serve_works_from_an_installed_copy(
    serve: tuple[str, Path], installed: Path, tmp_path: Path
) -> None:
    url, log = serve
    assert httpx.get(f"{url}/v1/health/").json()["version"] == __version__
    assert httpx.get(f"{url}/v1/agents/").json() == []
    assert httpx.get(f"{url}/static/admin/css/base.css").status_code == 200
    assert httpx.get(f"{url}/admin/login/").status_code == 200
    assert "souveraine createadmin makes a login" in log.read_text()
    assert "manage.py" not in log.read_text()
    key = run(installed, tmp_path, "createkey", "laptop").stdout.strip()
    headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "192.0.2.1"}
    assert httpx.get(f"{url}/v1/agents/", headers=headers).status_code == 200
