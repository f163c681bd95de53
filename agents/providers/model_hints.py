"""Reads what the entries of `/v1/models` lists tell of tools, vision and thinking, in their dialects.

Used by the providers when they list; knows no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = {  # names in the wild → ours
    "tools": "tools",
    "tool_use": "tools",
    "tool_calling": "tools",
    "tool_call": "tools",
    "function_calling": "tools",
    "function_call": "tools",
    "vision": "vision",
    "image": "vision",
    "image_input": "vision",
    "multimodal": "vision",
    "thinking": "thinking",
    "reasoning": "thinking",
}


def told_capabilities(entry: Mapping[str, Any]) -> frozenset[str] | None:
    """Read a /v1/models entry of an OpenAI-compatible server; None when it tells nothing.

    Of what only a part is told, tools and vision count as present: a capability is never denied by
    silence.
    """
    names, denied = _listed(entry)
    tools = "tools" in names if "tools" in names | denied else None
    thinking = "thinking" in names
    vision = _vision(entry)
    if vision is None and "vision" in names | denied:
        vision = "vision" in names
    parameters = entry.get("supported_parameters")
    if isinstance(parameters, list):  # OpenRouter and gateways like it
        tools = "tools" in parameters
        thinking = thinking or not {"reasoning", "include_reasoning"}.isdisjoint(parameters)
    if tools is None and vision is None and not thinking:
        return None
    found = {"tools": tools is not False, "vision": vision is not False, "thinking": thinking}
    return frozenset(name for name, is_there in found.items() if is_there)


def _listed(entry: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Give what `capabilities` affirms and denies: a list of names (llama.cpp, LM Studio), or an
    object of booleans (Mistral) or of `{"supported": …}` (Anthropic).
    """
    told = entry.get("capabilities")
    if isinstance(told, list):
        return {_NAMES[name] for name in map(str, told) if name in _NAMES}, set()
    if not isinstance(told, dict):
        return set(), set()
    affirmed: set[str] = set()
    denied: set[str] = set()
    for name, value in told.items():
        value = value.get("supported") if isinstance(value, dict) else value
        if name in _NAMES and isinstance(value, bool):
            (affirmed if value else denied).add(_NAMES[name])
    return affirmed, denied - affirmed


def _vision(entry: Mapping[str, Any]) -> bool | None:
    """Read input modalities (OpenRouter's `architecture`), or LM Studio's `type`."""
    architecture = entry.get("architecture")
    architecture = architecture if isinstance(architecture, dict) else {}
    inputs = architecture.get("input_modalities") or entry.get("input_modalities")
    if isinstance(inputs, list):
        return "image" in inputs
    modality = architecture.get("modality")  # "text+image->text"
    if isinstance(modality, str) and "->" in modality:
        return "image" in modality.partition("->")[0]
    if entry.get("type") == "vlm":
        return True
    # Elsewhere "llm" may be said of every model; LM Studio means one without vision.
    return False if entry.get("type") == "llm" and "max_context_length" in entry else None
