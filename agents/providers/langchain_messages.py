"""Our prompt messages as LangChain's; loaded in workers only (it imports LangChain)."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from agents.providers.base import ChatMessage, ToolCallRequest, arguments_object

Content = str | list[str | dict[str, Any]]


def to_langchain(
    messages: list[ChatMessage], *, inline_images_only: bool = False
) -> list[BaseMessage]:
    """Convert a prompt, one to one and in order.

    `inline_images_only`: the provider takes image bytes but fetches no URLs; such an image becomes
    text.
    """
    return [_message(message, inline_images_only) for message in messages]


def _message(message: ChatMessage, inline_images_only: bool) -> BaseMessage:
    content = _content(message.content, inline_images_only)
    if message.role == "system":
        return SystemMessage(content)
    if message.role == "user":
        return HumanMessage(content, name=message.name)
    if message.role == "assistant":
        return AIMessage(content, tool_calls=[_call(call) for call in message.tool_calls])
    status = "error" if message.is_error else "success"
    return ToolMessage(
        content, tool_call_id=message.tool_call_id or "", name=message.name, status=status
    )


def _call(call: ToolCallRequest) -> Any:
    return tool_call(name=call.name, args=arguments_object(call.arguments), id=call.id)


def _content(content: str | list[dict[str, Any]], inline_images_only: bool) -> Content:
    if isinstance(content, str):
        return content
    parts: list[str | dict[str, Any]] = [_part(part, inline_images_only) for part in content]
    if all(isinstance(part, dict) and part["type"] == "text" for part in parts):
        # Many servers' chat templates know only plain strings.
        return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict))
    return parts


def _part(part: dict[str, Any], inline_images_only: bool) -> dict[str, Any]:
    if part.get("type") == "image":
        source = part.get("source") or {}
        if source.get("data"):
            media_type = source.get("media_type") or "image/png"
            return _image(f"data:{media_type};base64,{source['data']}")
        url = str(source.get("url") or "")
        if url and (url.startswith("data:") or not inline_images_only):
            return _image(url)
        return {
            "type": "text",
            "text": f"[image: {source.get('url') or source.get('file_id') or 'missing'}]",
        }
    return {"type": "text", "text": str(part.get("text", ""))}


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}
