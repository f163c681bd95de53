"""The registry of MCP servers: one behind both forms of the API, its secrets encrypted and masked."""

from __future__ import annotations

import json
from typing import Any

from agents.models import McpServer
from souveraine.testing import cast
from tests.conftest import Api

URL = "https://mcp.example/mcp"
TOKEN = "Bearer very-secret"
NO_ID = "00000000-0000-4000-8000-000000000000"


def add(api: Api, name: str = "tools", **config: Any) -> dict[str, Any]:
    answer = api.post("/v1/mcp-servers/", {"server_name": name, "config": config})
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def test_it_works(idle_api: Api) -> None:
    made = add(
        idle_api,
        mcp_server_type="streamable_http",
        server_url=URL,
        auth_header="Authorization",
        auth_token=TOKEN,
        custom_headers={"X-Team": "very-secret"},
    )
    assert made == {
        "mcp_server_type": "streamable_http",
        "server_url": URL,
        "auth_header": "Authorization",
        "auth_token": "********",
        "custom_headers": {"X-Team": "********"},
        "id": made["id"],
        "server_name": "tools",
    }
    path = f"/v1/mcp-servers/{made['id']}"
    assert idle_api.get(path).json() == made
    assert idle_api.get("/v1/mcp-servers").json() == [made]
    assert idle_api.get(f"{path}/tools").json() == []
    gone = idle_api.delete(path)
    assert (gone.status, gone.body) == (204, b"")
    assert idle_api.delete(path).status == 404


def test_secrets_are_encrypted_and_stay_when_they_are_left_out_or_sent_back_masked(
    idle_api: Api,
) -> None:
    made = add(idle_api, "one", mcp_server_type="sse", server_url=URL, auth_token=TOKEN)
    stdio = add(idle_api, "two", command="npx", args=["-y", "x"], env={"KEY": "very-secret"})
    assert (stdio["mcp_server_type"], stdio["args"]) == ("stdio", ["-y", "x"])
    assert stdio["env"] == {"KEY": "********"}
    before = McpServer.objects.get(name="one").secrets_encrypted
    assert "very-secret" not in before
    change = {"server_url": f"{URL}2", "auth_token": "********"}
    changed = idle_api.patch(f"/v1/mcp-servers/{made['id']}", {"config": change}).json()
    assert changed["server_url"] == f"{URL}2"
    from souveraine.lib.secrets import decrypt

    kept = json.loads(decrypt(McpServer.objects.get(name="one").secrets_encrypted))
    assert kept == {"auth_token": TOKEN}
    env = {"KEY": "********", "MORE": "other"}
    idle_api.patch(f"/v1/mcp-servers/{stdio['id']}", {"config": {"env": env}})
    kept = json.loads(decrypt(McpServer.objects.get(name="two").secrets_encrypted))
    assert kept == {"env": {"KEY": "very-secret", "MORE": "other"}}
    everything = [idle_api.get("/v1/mcp-servers").body, idle_api.get("/v1/tools/mcp/servers").body]
    assert not any(b"very-secret" in body for body in everything)


def test_the_older_form_shows_and_changes_the_same_servers(idle_api: Api) -> None:
    old = "/v1/tools/mcp/servers"
    [put] = idle_api.request(
        "PUT", old, {"server_name": "s", "type": "sse", "server_url": URL, "auth_token": TOKEN}
    ).json()
    assert (put["server_name"], put["type"], put["auth_token"]) == ("s", "sse", "********")
    [new] = idle_api.get("/v1/mcp-servers").json()
    assert (new["server_name"], new["mcp_server_type"]) == ("s", "sse")
    changed = idle_api.patch(f"{old}/s", {"server_url": f"{URL}2", "server_name": "t"})
    assert changed.json()["server_url"] == f"{URL}2"
    assert set(idle_api.get(old).json()) == {"t"}
    assert idle_api.get(f"{old}/t/tools").json() == []
    assert idle_api.delete(f"{old}/t").json() == []
    assert idle_api.delete(f"{old}/t").status == 404


def test_what_needs_a_connection_says_that_there_is_none_yet(idle_api: Api) -> None:
    made = add(idle_api, server_url=URL)
    calls = [
        ("PATCH", f"mcp-servers/{made['id']}/refresh", None),
        ("GET", f"mcp-servers/connect/{made['id']}", None),
        ("POST", "tools/mcp/servers/tools/resync", None),
        ("POST", "tools/mcp/servers/tools/roll", None),
        ("POST", "tools/mcp/servers/tools/tools/roll/execute", None),
        ("POST", "tools/mcp/servers/test", {"server_name": "x", "server_url": URL}),
        ("POST", "tools/mcp/servers/connect", {"server_name": "x", "server_url": URL}),
    ]
    for method, path, body in calls:
        answer = idle_api.request(method, f"/v1/{path}", body)
        assert answer.status == 404, (path, answer.body)
        assert "does not connect" in answer.json()["detail"]["message"]
    assert idle_api.get(f"/v1/mcp-servers/{made['id']}/tools/tool-{NO_ID}").status == 404
    assert idle_api.post(f"/v1/mcp-servers/{made['id']}/tools/tool-{NO_ID}/run").status == 404


def test_what_is_no_server_is_refused(idle_api: Api) -> None:
    wrong: list[tuple[Any, int]] = [
        ({"server_name": "a"}, 422),
        ({"server_name": "", "config": {"server_url": URL}}, 422),
        ({"server_name": "a/b", "config": {"server_url": URL}}, 422),
        ({"server_name": "a", "config": {}}, 422),
        ({"server_name": "a", "config": {"mcp_server_type": "pigeon", "server_url": URL}}, 422),
        ({"server_name": "a", "config": {"mcp_server_type": "stdio", "server_url": URL}}, 422),
        ({"server_name": "a", "config": {"server_url": "file:///etc/passwd"}}, 400),
        ({"server_name": "a", "config": {"command": "x", "env": {"A": 5}}}, 422),
    ]
    for body, status in wrong:
        answer = idle_api.post("/v1/mcp-servers", body)
        assert answer.status == status, (body, answer.body)
    assert McpServer.objects.count() == 0
    add(idle_api, server_url=URL)
    again = {"server_name": "tools", "config": {"server_url": URL}}
    assert idle_api.post("/v1/mcp-servers", again).status == 409


def test_a_command_added_without_an_admin_key_is_marked(idle_api: Api) -> None:
    made = add(idle_api, command="rm")
    assert not McpServer.objects.get().has_admin_origin
    idle_api.patch(
        f"/v1/mcp-servers/{made['id']}", {"config": {"args": ["x"]}}, headers=cast.alice().headers
    )
    assert McpServer.objects.get().has_admin_origin
    idle_api.patch(f"/v1/mcp-servers/{made['id']}", {"config": {"args": ["y"]}})
    assert not McpServer.objects.get().has_admin_origin
