"""Configuration → providers, handles → models, and what happens when a provider is away."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agents.providers import registry
from agents.providers.anthropic import AnthropicProvider
from agents.providers.base import ModelInfo
from agents.providers.bifrost import BifrostProvider
from agents.providers.errors import Endpoint, from_status
from agents.providers.ollama import OllamaProvider
from agents.providers.openai import OpenAIProvider
from souveraine import config
from souveraine.errors import InvalidArgument, NotFound, ProviderError, Unavailable
from souveraine.testing.fake_provider import FakeProvider
from tests.providers.wire import WireServer, as_json

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def configure(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that configures by environment names, and puts a fresh registry in place."""
    monkeypatch.setattr(registry, "_state", registry._State())

    def apply(**values: str) -> None:
        off = {"OLLAMA_BASE_URL": "http://127.0.0.1:1", "SOUVERAINE_DATA_DIR": str(tmp_path)}
        settings.CONFIG = config.load({**off, **values})
        registry._state.providers = None
        registry._state.listing = None

    apply()
    return apply


def away(name: str) -> FakeProvider:
    provider = FakeProvider(name)
    provider.listing_error = ProviderError("llm_error", f"Connection error: cannot reach {name}")
    return provider


def test_it_works() -> None:
    with registry.override_providers({"fake": FakeProvider()}):
        assert [m.handle for m in registry.list_models()] == ["fake/fake-model"]
        assert registry.get_model("fake/fake-model").context_window == 32768
        provider, model = registry.resolve("fake/fake-model")
        assert (provider.name, model) == ("fake", "fake-model")
    assert "fake" not in registry.providers()


def urls() -> dict[str, str]:
    known = registry.providers().items()
    return {
        name: p.endpoint.url
        for name, p in known
        if isinstance(p, OpenAIProvider | OllamaProvider | AnthropicProvider)
    }


def test_only_what_is_configured_is_there(configure: Any) -> None:
    assert list(registry.providers()) == ["ollama", "local"]
    configure(OPENAI_API_KEY="sk-1")
    assert urls()["openai"] == "https://api.openai.com/v1"
    configure(OPENAI_BASE_URL="gateway:9/v1/", BIFROST_BASE_URL="http://b:8080")
    assert urls() == {
        "openai": "http://gateway:9/v1",
        "bifrost": "http://b:8080/v1",
        "ollama": "http://127.0.0.1:1",
    }
    configure(ANTHROPIC_API_KEY="sk-ant")
    assert urls()["anthropic"] == "https://api.anthropic.com/v1"
    configure(ANTHROPIC_BASE_URL="gateway:9/anthropic/v1/")
    assert urls()["anthropic"] == "http://gateway:9/anthropic/v1"


@pytest.mark.parametrize("url", ["b:8080", "http://b:8080/", "http://b:8080/v1", "b:8080/v1/"])
def test_bifrosts_address_gets_its_v1_once(configure: Any, url: str) -> None:
    configure(
        BIFROST_BASE_URL=url, BIFROST_VIRTUAL_KEY="vk-1", BIFROST_FALLBACKS="openai/a, bifrost/b"
    )
    bifrost = registry.providers()["bifrost"]
    assert isinstance(bifrost, BifrostProvider)
    assert bifrost.endpoint.url == "http://b:8080/v1"
    assert (bifrost.endpoint.virtual_key, bifrost.endpoint.api_key) == ("vk-1", "")
    assert bifrost.fallbacks == ["openai/a", "b"]


def test_handle_is_split_at_the_first_slash_and_old_names_work() -> None:
    fakes = {n: FakeProvider(n, models=["a/b"]) for n in ("openai", "bifrost")}
    with registry.override_providers(fakes):
        assert registry.resolve("openai/a/b") == (fakes["openai"], "a/b")
        assert registry.resolve("openai-proxy/a/b") == (fakes["openai"], "a/b")
        assert registry.resolve("a/b") == (fakes["bifrost"], "a/b")
        assert registry.get_model("openai-proxy/a/b").handle == "openai/a/b"
        assert registry.get_model("a/b").handle == "bifrost/a/b"


@pytest.mark.parametrize("handle", ["noslash", "/x", "fake/", ""])
def test_handle_without_provider_or_model_is_refused(handle: str) -> None:
    with (
        registry.override_providers({"fake": FakeProvider()}),
        pytest.raises(InvalidArgument) as caught,
    ):
        registry.resolve(handle)
    assert (
        caught.value.detail
        == "INVALID_ARGUMENT: The model handle should be in the format provider/model-name"
    )


def test_unknown_provider_names_those_there_are() -> None:
    with (
        registry.override_providers({"fake": FakeProvider()}),
        pytest.raises(InvalidArgument, match="one of fake"),
    ):
        registry.resolve("anthropic/claude")


def test_unknown_model_is_not_found_with_the_known_handles() -> None:
    with registry.override_providers({"fake": FakeProvider()}), pytest.raises(NotFound) as caught:
        registry.get_model("fake/nope")
    assert (
        caught.value.detail
        == "NOT_FOUND: Handle fake/nope not found, must be one of ['fake/fake-model']"
    )


def test_provider_that_is_away_is_noted_and_spoils_nothing() -> None:
    with registry.override_providers({"down": away("down"), "fake": FakeProvider()}):
        assert [m.handle for m in registry.list_models()] == ["fake/fake-model"]
        assert registry.provider_problems() == {"down": "Connection error: cannot reach down"}
        with pytest.raises(Unavailable, match="cannot reach down"):
            registry.get_model("down/x")


def test_unreachable_ollama_and_openai_name_their_urls(configure: Any) -> None:
    configure(OPENAI_BASE_URL="http://127.0.0.1:1/v1", OPENAI_API_KEY="sk-very-secret")
    assert registry.list_models() == []
    problems = registry.provider_problems()
    assert set(problems) == {"openai", "ollama"}
    assert "http://127.0.0.1:1/v1" in problems["openai"]
    assert "sk-very-secret" not in str(problems)
    assert registry.default_model() is None


def test_listing_is_kept_for_a_while_and_asked_once_by_many_threads(
    server: WireServer, configure: Any
) -> None:
    server.on("/v1/models", as_json({"data": [{"id": "m"}]}, delay_seconds=0.1))
    configure(OPENAI_BASE_URL=f"{server.url}/v1")
    threads = [threading.Thread(target=registry.list_models) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1
    registry.list_models(refresh=True)
    assert len(server.requests) == 2


def test_model_that_has_just_appeared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeProvider(models=["old"])
    with registry.override_providers({"fake": fake}):
        registry.list_models()
        fake.models.append("new")
        with pytest.raises(NotFound):
            registry.get_model(
                "fake/new"
            )  # asked too often, a wrong handle must not flood providers
        listing = registry._state.listing
        assert listing is not None
        listing.made_at -= 1
        assert registry.get_model("fake/new").name == "new"


def test_slow_provider_delays_a_listing_only_up_to_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(FakeProvider):
        def list_models(self) -> list[ModelInfo]:
            time.sleep(1)
            return super().list_models()

    monkeypatch.setattr(registry, "GATHER_SECONDS", 0.1)
    with registry.override_providers({"slow": Slow("slow"), "fake": FakeProvider()}):
        assert [m.handle for m in registry.list_models()] == ["fake/fake-model"]
        assert "no answer" in registry.provider_problems()["slow"]


def test_default_model_prefers_configured_then_ollamas_then_first_then_demonstration(
    configure: Any,
) -> None:
    class Demo(FakeProvider):
        def list_models(self) -> list[ModelInfo]:
            return [
                ModelInfo(
                    "local/demo",
                    "demo",
                    "local",
                    "openai",
                    "openai",
                    "",
                    8192,
                    "d",
                    is_demonstration=True,
                )
            ]

    def default(*given: FakeProvider) -> str | None:
        with registry.override_providers({p.name: p for p in given}):
            found = registry.default_model()
            return found.handle if found else None

    first, ollama = (
        FakeProvider("openai", models=["a"]),
        FakeProvider("ollama", models=["z", "qwen3:8b", "qwen3:latest"]),
    )
    assert default(Demo("local"), first, ollama) == "ollama/qwen3:latest"
    assert default(Demo("local"), first) == "openai/a"
    assert default(Demo("local")) == "local/demo"
    assert default() is None
    configure(SOUVERAINE_DEFAULT_MODEL="openai/a")
    assert default(ollama, first) == "openai/a"
    with pytest.raises(InvalidArgument):
        default(ollama)


def test_the_web_process_loads_neither_langchain_nor_numpy(tmp_path: Path) -> None:
    code = (
        "import sys, django\n"
        "django.setup()\n"
        "import conversations.api.urls\n"
        "from agents.providers import registry, demo, local, base, errors\n"
        "registry.list_models(); registry.provider_problems()\n"
        "heavy = ('langchain', 'langgraph', 'openai', 'ollama', 'numpy')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])\n"
    )
    env = {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "souveraine.settings",
        "PYTHONPATH": str(ROOT),
        "SOUVERAINE_DATA_DIR": str(tmp_path),
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
        "OLLAMA_BASE_URL": "http://127.0.0.1:1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_warm_up_builds_requests_without_calling_out() -> None:
    registry.warm_up()


def test_errors_show_neither_keys_nor_passwords_nor_whole_pages() -> None:
    endpoint = Endpoint("x", "X", "http://user:pass-word@host/v1", api_key="sk-secret")
    detail = from_status(
        endpoint, 500, "sk-secret http://user:pass-word@host/v1 " + "x" * 9000
    ).provider_detail
    assert "sk-secret" not in detail
    assert "pass-word" not in detail
    assert "http://host/v1" in detail
    assert len(detail) < 2500


def test_resolving_does_not_wait_for_a_listing_in_progress() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(FakeProvider):
        def list_models(self) -> list[ModelInfo]:
            entered.set()
            go_on.wait(10)
            return super().list_models()

    with registry.override_providers({"slow": Slow("slow")}):
        thread = threading.Thread(target=registry.list_models)
        thread.start()
        assert entered.wait(5)
        assert registry.resolve("slow/x")[1] == "x"
        assert thread.is_alive()
        go_on.set()
        thread.join()
