"""Images reach the model as bytes: checked before they are stored, fetched once, never from private addresses."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from conversations.models import Message, Run
from conversations.turn import images
from souveraine.lib.outbound import Refused, Reply, Unreachable
from tests.conftest import Api, make_agent

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TEXT = base64.b64encode(PNG).decode()
URL = "https://pictures.example/cat.png"


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


def send(api: Api, agent: dict[str, Any], *parts: dict[str, Any]) -> Any:
    content = [{"type": "text", "text": "What is it?"}, *parts]
    return api.post(f"/v1/agents/{agent['id']}/messages", {"input": content})


def shown(provider: Any) -> list[dict[str, Any]]:
    """The parts of the last message that the model was shown."""
    content = provider.requests[-1].messages[-1].content
    assert isinstance(content, list)
    return content


@pytest.fixture
def web(monkeypatch: Any) -> dict[str, Any]:
    """What addresses answer: a Reply, or what is raised."""
    pages: dict[str, Any] = {}
    asked: list[str] = []
    pages["asked"] = asked

    async def request(method: str, url: str, **options: Any) -> Reply:
        asked.append(url)
        found = pages[url]
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    monkeypatch.setattr(images, "request", request)
    return pages


def ok(body: bytes) -> Reply:
    return Reply(200, [(b"Content-Type", b"text/plain")], body, is_cut=False)


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/png", "data": TEXT},
        {"type": "letta", "file_id": "f", "data": TEXT},
        {"type": "url", "url": f"data:image/png;base64,{TEXT}"},
    ],
)
def test_inline_images_reach_the_model(
    api: Api, agent: dict[str, Any], provider: Any, source: dict[str, Any]
) -> None:
    assert send(api, agent, image(**source)).status == 200
    stored = {"type": "base64", "media_type": "image/png", "data": TEXT}
    assert shown(provider)[1]["source"] == stored
    listed = api.get(f"/v1/agents/{agent['id']}/messages").json()
    assert listed[1]["content"][1] == {"type": "image", "source": stored}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "%%%"}, "no base64"),
        ({"type": "base64", "media_type": "image/jpeg", "data": TEXT}, "it is image/png"),
        ({"type": "base64", "data": base64.b64encode(b"<svg/>").decode()}, "no image"),
        ({"type": "base64", "data": "A" * 8_000_000}, "SOUVERAINE_MAX_IMAGE_BYTES"),
        ({"type": "letta", "file_id": "file-1"}, "file_id"),
        ({"type": "url", "url": "http://127.0.0.1/x.png"}, "not a public address"),
        ({"type": "url", "url": "http://169.254.169.254/latest"}, "not a public address"),
        ({"type": "url", "url": "file:///etc/passwd"}, "http"),
        ({"type": "elsewhere"}, "base64"),
        ({}, "base64"),
    ],
)
def test_what_is_no_usable_image_is_refused_and_nothing_is_stored(
    idle_api: Api, source: dict[str, Any], says: str
) -> None:
    agent = make_agent(idle_api)
    answer = send(idle_api, agent, image(**source))
    assert answer.status == 422, answer.body[:300]
    assert says in answer.json()["detail"]
    assert len(answer.body) < 5_000
    assert not Run.objects.exists()


def test_too_many_images_are_refused(idle_api: Api) -> None:
    agent = make_agent(idle_api)
    many = [image(type="base64", data=TEXT)] * 21
    assert send(idle_api, agent, *many).status == 422


def test_an_image_for_a_model_that_cannot_see_is_refused(idle_api: Api, provider: Any) -> None:
    provider.capabilities = frozenset({"tools"})
    agent = make_agent(idle_api)
    answer = send(idle_api, agent, image(type="base64", data=TEXT))
    assert answer.status == 422
    assert "cannot see images" in answer.json()["detail"]


def test_an_image_at_a_url_is_fetched_once_and_kept(
    api: Api, agent: dict[str, Any], provider: Any, web: dict[str, Any]
) -> None:
    moved = Reply(302, [(b"Location", b"/dog.png")], b"", is_cut=False)
    web |= {URL: moved, "https://pictures.example/dog.png": ok(PNG)}
    assert send(api, agent, image(type="url", url=URL)).status == 200
    source = {"type": "base64", "media_type": "image/png", "data": TEXT, "url": URL}
    assert shown(provider)[1]["source"] == source
    del web[URL]
    assert api.post(f"/v1/agents/{agent['id']}/messages", {"input": "Sure?"}).status == 200
    earlier = provider.requests[-1].messages[-3].content
    assert earlier[1]["source"]["data"] == TEXT
    assert len(web["asked"]) == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Refused("10.0.0.1 is not a public address"), "not a public address"),
        (Unreachable("no such host"), "no such host"),
        (Reply(404, [], b"", is_cut=False), "status 404"),
        (ok(b"<html>"), "no image"),
        (ok(PNG + b"x" * 6_000_000), "SOUVERAINE_MAX_IMAGE_BYTES"),
        (Reply(302, [(b"location", URL.encode())], b"", is_cut=False), "redirects"),
        (
            Reply(302, [(b"location", b"http://[")], b"", is_cut=False),
            "redirects to what is no URL",
        ),
    ],
)
def test_an_image_that_cannot_be_fetched_is_told_and_the_turn_goes_on(
    api: Api, agent: dict[str, Any], provider: Any, web: dict[str, Any], answer: Any, says: str
) -> None:
    web[URL] = answer
    assert send(api, agent, image(type="url", url=URL)).status == 200
    told = shown(provider)[1]
    assert told["type"] == "text"
    assert says in told["text"]
    run = api.get("/v1/runs").json()[0]
    assert says in run["metadata"]["notices"][0]
    assert Message.objects.get(role="user").content[1]["source"]["url"] == URL
