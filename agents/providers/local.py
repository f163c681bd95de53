"""Models that this server runs itself: `local/<stem>` for GGUF files in `<data dir>/models/`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from django.utils.module_loading import import_string

from agents.providers import errors, openai
from agents.providers.base import ChatRequest, Delta, ModelInfo
from agents.providers.demo import DEMO_STEM
from agents.providers.engine import INSTALL_ADVICE, Engine, LocalModel
from agents.providers.errors import Endpoint
from agents.providers.gguf import NotGGUF, Weights, read_weights
from souveraine.errors import Unavailable

MAX_CONTEXT_TOKENS = 8192  # on a CPU a longer prompt takes minutes, and its cache gigabytes
MAX_OUTPUT_TOKENS = 4096
DEMO_OUTPUT_TOKENS = 512  # it likes to go round in circles


class LocalProvider:
    """The GGUF files of one data directory. The engine starts at the first call, in that process
    only.
    """

    name = "local"
    provider_type = "openai"

    def __init__(
        self, data_dir: Path, *, timeout_seconds: float, engine: Engine | None = None
    ) -> None:
        self.models_dir = data_dir / "models"
        self.timeout_seconds = timeout_seconds
        self.engine = engine or Engine(data_dir / "logs" / "local-engine.log")
        self._heads: dict[tuple[str, int, int], Weights | None] = {}

    def list_models(self) -> list[ModelInfo]:
        """As ChatProvider says; files that are no GGUF and embedding models are left out.

        Raises Unavailable when there are files but no engine.
        """
        found = [self._model(path, head) for path in self._files() if (head := self._head(path))]
        if found and not self.engine.is_installed:
            raise Unavailable(
                f"There are models in {self.models_dir}, but no engine to run them: "
                f"{INSTALL_ADVICE}."
            )
        return found

    def _files(self) -> list[Path]:
        return sorted(self.models_dir.glob("*.gguf")) if self.models_dir.is_dir() else []

    def _head(self, path: Path) -> Weights | None:
        try:
            stat = path.stat()
            key = (path.name, stat.st_size, stat.st_mtime_ns)
            if key not in self._heads:
                self._heads[key] = _chat_weights(path)
        except OSError:
            return None  # gone meanwhile, or not ours to read
        return self._heads[key]

    def _model(self, path: Path, head: Weights) -> ModelInfo:
        is_demo = path.stem == DEMO_STEM
        window = min(head.context_length or MAX_CONTEXT_TOKENS, MAX_CONTEXT_TOKENS)
        return ModelInfo(
            handle=f"{self.name}/{path.stem}",
            name=path.stem,
            provider_name=self.name,
            provider_type=self.provider_type,
            endpoint_type="openai",
            endpoint=str(self.models_dir),
            context_window=window,
            display_name="SmolLM2 135M (demonstration model)" if is_demo else path.stem,
            max_output_tokens=DEMO_OUTPUT_TOKENS
            if is_demo
            else min(MAX_OUTPUT_TOKENS, window // 2),
            capabilities=frozenset({"tools"}) if head.knows_tools and not is_demo else frozenset(),
            is_demonstration=is_demo,
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """As ChatProvider says; the first call also loads the model. Tools go only to models that
        know them.
        """
        info = await asyncio.to_thread(self._find, request.model)  # it may read a file
        model = LocalModel(info.name, self.models_dir / f"{info.name}.gguf", info.context_window)
        fitted = replace(
            request,
            tools=request.tools if info.can("tools") else [],
            max_tokens=min(request.max_tokens or info.max_output_tokens, info.max_output_tokens),
        )
        chat = import_string(openai.STREAM)
        async with (
            self.engine.lease(model, timeout_seconds=self.timeout_seconds) as endpoint,
            aclosing(chat(endpoint, fitted, self.timeout_seconds)) as deltas,
        ):
            async for delta in deltas:
                yield delta

    def _find(self, name: str) -> ModelInfo:
        path = next((p for p in self._files() if p.stem == name), None)
        head = self._head(path) if path else None
        if path is None or head is None:
            endpoint = Endpoint(self.name, "the local engine", str(self.models_dir))
            raise errors.bad_request(
                endpoint,
                f"there is no usable model {name!r}",
                f"put {name}.gguf into {self.models_dir}",
            )
        return self._model(path, head)


def _chat_weights(path: Path) -> Weights | None:
    try:
        head = read_weights(path)
    except NotGGUF:
        return None
    return None if head.is_embedding else head
