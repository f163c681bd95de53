"""Reads what we need from the head of a GGUF weights file; nothing of the tensors is touched."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_MAX_KEYS = 10_000

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Weights:
    """The head of a weights file; `context_length` in tokens, None when the file does not tell."""

    architecture: str
    context_length: int | None
    chat_template: str

    @property
    def is_embedding(self) -> bool:
        return self.architecture.endswith("bert")

    @property
    def knows_tools(self) -> bool:
        return "tools" in self.chat_template


class NotGGUF(ValueError):
    """The file is no readable GGUF file."""


def read_weights(path: Path) -> Weights:
    """Read the head of the file. Raises NotGGUF for other and cut files, OSError when it cannot be
    read.
    """
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                values = _Reader(data).read()
        except (struct.error, ValueError) as exc:  # a cut file, an empty one, a wrong string
            raise NotGGUF(f"{path.name} is not a readable GGUF file: {exc}") from exc
    architecture = str(values.get("general.architecture") or "")
    length = values.get(f"{architecture}.context_length")
    return Weights(
        architecture,
        length if isinstance(length, int) else None,
        str(values.get("tokenizer.chat_template") or ""),
    )


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.position = data, 0

    def read(self) -> dict[str, Value]:
        if self.data[:4] != b"GGUF":
            raise ValueError("wrong magic")
        self.position = 4
        version, _tensors, keys = self._take("<I"), self._take("<Q"), self._take("<Q")
        if int(version) < 2 or int(keys) > _MAX_KEYS:
            raise ValueError(f"version {version} with {keys} keys")
        values: dict[str, Value] = {}
        for _ in range(int(keys)):
            key = self._string()
            values[key] = self._value(int(self._take("<I")))
        return values

    def _take(self, form: str) -> int | float | bool:
        value: int | float | bool = struct.unpack_from(form, self.data, self.position)[0]
        self.position += struct.calcsize(form)
        return value

    def _span(self) -> bytes:
        length = int(self._take("<Q"))
        if length > len(self.data) - self.position:
            raise ValueError("the file is cut")
        self.position += length
        return self.data[self.position - length : self.position]

    def _string(self) -> str:
        return self._span().decode(errors="replace")

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            self._skip_array()
            return None
        if kind not in _SCALARS:
            raise ValueError(f"unknown type {kind}")
        return self._take(_SCALARS[kind])

    def _skip_array(self) -> None:
        kind, count = int(self._take("<I")), int(self._take("<Q"))
        if kind in _SCALARS:
            self.position += count * struct.calcsize(_SCALARS[kind])
        elif kind == _STRING:
            for _ in range(count):
                self._span()
        else:
            raise ValueError(f"unknown array type {kind}")
