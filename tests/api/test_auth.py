"""Who may call what: keys, scopes, loopback trust, foreign pages, and other people's things."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from agents.models import Agent, ApiKey, Block, User
from agents.services.keys import revoke_key
from conversations.models import Conversation, Message, Run
from souveraine.testing import cast
from tests.api.routes import ROUTES, Route, World, all_routes, filled, methods, patterns
from tests.conftest import Answer, Api, make_agent

REMOTE = ("10.0.0.5", 40_000)
SAFE = ("GET", "HEAD", "OPTIONS")


def call(api: Api, world: World, route: Route, **options: Any) -> Answer:
    return api.request(
        route.method,
        f"/v1/{world.fill(route.path)}",
        filled(world, route.body),
        is_endless=route.is_endless,
        **options,
    )


def counts() -> list[int]:
    return [model.objects.count() for model in (Agent, Block, Conversation, Message, Run)]


def is_refused(answer: Answer) -> bool:
    return (
        answer.status == 401
        and answer.headers.get("www-authenticate") == "Bearer"
        and answer.json()["detail"].startswith("Unauthorized. ")
        and "createkey" in answer.json()["detail"]
    )


def test_every_route_and_method_is_in_the_table() -> None:
    wanted = {(p, m) for p, view in patterns().items() for m in methods(view)}
    assert wanted == {(p, route.method) for p, routes in ROUTES.items() for route in routes}


def test_without_a_valid_key_nothing_answers_a_remote_caller(api: Api, world: World) -> None:
    before = counts()
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer"}):
        for route in all_routes():
            if route.path in ("health", "ready"):
                continue
            answer = call(api, world, route, client=REMOTE, headers=headers)
            assert is_refused(answer), (route, headers, answer.status, answer.body)
    assert counts() == before


def test_health_needs_no_key_from_anywhere(api: Api) -> None:
    assert api.get("/v1/health", client=REMOTE, headers={"host": "evil.example"}).status == 200


def test_with_a_key_every_route_answers_a_remote_caller(api: Api, world: World) -> None:
    alice = cast.alice()
    for route in all_routes():
        answer = call(api, world, route, client=REMOTE, headers=alice.headers)
        # The last ones find what was deleted just before.
        assert answer.status == route.expected or route.method == "DELETE", (
            route,
            answer.status,
            answer.body,
        )


def test_a_stranger_finds_nothing_of_alice_on_any_route(api: Api, world: World) -> None:
    charlie = cast.charlie()
    texts = [world.agent, world.block, world.free_block, world.conversation, world.run]
    for route in all_routes():
        answer = call(api, world, route, headers=charlie.headers)
        if isinstance(route.stranger, int):
            assert answer.status == route.stranger, (route, answer.status, answer.body)
            continue
        assert answer.status == 200, (route, answer.status, answer.body)
        assert not any(text.encode() in answer.body for text in texts), route
        if route.stranger == "empty":
            assert answer.json() in ([], 0), route
    agent = Agent.objects.get(pk=world.agent.removeprefix("agent-"))
    assert agent.name == "golden-agent"
    assert Block.objects.filter(pk=world.free_block.removeprefix("block-")).exists()
    assert not Block.objects.filter(value="stolen").exists()
    assert not Agent.objects.filter(name="thief").exists()


def test_cursors_and_ids_of_alice_do_not_help_a_stranger(api: Api, world: World) -> None:
    charlie = cast.charlie()
    own = api.post("/v1/agents", {"name": "mine"}, headers=charlie.headers).json()
    for path in (
        f"agents?after={world.agent}",
        f"blocks?before={world.block}",
        f"conversations?after={world.conversation}",
        f"runs?after={world.run}",
    ):
        assert api.get(f"/v1/{path}", headers=charlie.headers).status == 404, path
    attach = f"/v1/agents/{own['id']}/core-memory/blocks/attach/{world.free_block}"
    assert api.patch(attach, headers=charlie.headers).status == 404
    changed = api.patch(
        f"/v1/agents/{own['id']}", {"block_ids": [world.free_block]}, headers=charlie.headers
    )
    assert changed.status == 404
    alices = f"/v1/agents/{own['id']}/messages?conversation_id={world.conversation}"
    assert api.get(alices, headers=charlie.headers).status == 404


def test_a_key_without_the_scope_is_refused_on_writes_only(api: Api, world: World) -> None:
    reader = cast.alice("read")
    before = counts()
    for route in all_routes():
        answer = call(api, world, route, headers=reader.headers)
        if route.path in ("health", "ready") or route.method in SAFE:
            assert answer.status == route.expected, (route, answer.body)
        else:
            assert answer.status == 403, (route, answer.status)
            assert "scope 'chat'" in answer.json()["detail"]
    assert counts() == before


def test_a_revoked_or_expired_key_is_as_good_as_none(api: Api) -> None:
    revoked, expired, inactive = cast.alice(), cast.alice(), cast.bob()
    for person in (revoked, expired, inactive):
        assert api.get("/v1/agents", client=REMOTE, headers=person.headers).status == 200
    rows = ApiKey.objects.filter(owner=revoked.user).order_by("created_at")
    revoke_key(rows[0])
    ApiKey.objects.filter(pk=rows[1].pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    User.objects.filter(pk=inactive.user.pk).update(is_active=False)
    for person in (revoked, expired, inactive):
        assert is_refused(api.get("/v1/agents", client=REMOTE, headers=person.headers))


def test_from_this_machine_any_key_or_none_is_the_first_user(api: Api) -> None:
    make_agent(api, name="of-the-first-user")
    first = f"user-{User.FIRST_ID}"
    for headers in ({}, {"authorization": "Bearer local-dev-key"}, {"authorization": "Bearer"}):
        for client in (("127.0.0.1", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)):
            found = api.get("/v1/agents", headers=headers, client=client).json()
            assert [agent["created_by_id"] for agent in found] == [first]


def test_a_valid_key_wins_over_the_first_user_on_this_machine(api: Api) -> None:
    make_agent(api)
    assert api.get("/v1/agents", headers=cast.charlie().headers).json() == []


FOREIGN: list[dict[str, str]] = [
    {"x-forwarded-for": "192.0.2.1"},
    {"x-real-ip": "192.0.2.1"},
    {"forwarded": "for=192.0.2.1"},
    {"via": "1.1 proxy"},
    {"host": "evil.example"},
    {"host": "127.0.0.1.evil.example"},
    {"host": "["},
    {"origin": "null"},
    {"origin": "https://evil.example"},
    {"origin": "http://localhost.evil.example"},
    {"origin": "http://["},
    {"origin": "http://localhost:9999", "host": "localhost:8283"},
    {"sec-fetch-site": "cross-site"},
]
OWN: list[dict[str, str]] = [
    {"host": "LOCALHOST:8283"},
    {"host": "[::1]:8283"},
    {"origin": "http://localhost:8283", "host": "localhost:8283"},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
]


def test_what_a_foreign_page_or_proxy_sends_needs_a_key(idle_api: Api) -> None:
    key = cast.alice().headers
    for headers in FOREIGN:
        for method, path, body in (("GET", "agents", None), ("POST", "blocks", {"label": "x"})):
            keyless = idle_api.request(method, f"/v1/{path}", body, headers=headers)
            assert is_refused(keyless), (headers, keyless)
            keyed = idle_api.request(method, f"/v1/{path}", body, headers={**headers, **key})
            assert keyed.status == 200, (headers, keyed)


def test_pages_of_this_server_and_programs_here_need_none(idle_api: Api) -> None:
    for headers in OWN:
        assert idle_api.get("/v1/agents", headers=headers).status == 200, headers


def test_configured_hosts_and_origins_are_known(idle_api: Api, settings: Any) -> None:
    host, origin = {"host": "my.home"}, {"origin": "https://ui.example"}
    assert is_refused(idle_api.get("/v1/agents", headers=host))
    settings.CONFIG = _changed(settings.CONFIG, "SOUVERAINE_ALLOWED_HOSTS", ["my.home"])
    settings.CONFIG = _changed(settings.CONFIG, "SOUVERAINE_CORS_ORIGINS", ["https://ui.example"])
    assert idle_api.get("/v1/agents", headers=host).status == 200
    assert idle_api.get("/v1/agents", headers=origin).status == 200


def _changed(config: Any, name: str, value: Any) -> Any:
    return type(config)(**{**vars(config), "values": {**config.values, name: value}})


def test_the_key_of_the_configuration_has_all_rights_of_the_first_user(
    api: Api, settings: Any
) -> None:
    settings.CONFIG = _changed(settings.CONFIG, "SOUVERAINE_API_KEY", "boot-key")
    agent = make_agent(api, secrets={"TOKEN": "hush"})
    headers = {"authorization": "Bearer boot-key"}
    found = api.get(f"/v1/agents/{agent['id']}", client=REMOTE, headers=headers).json()
    assert [secret["value"] for secret in found["secrets"]] == ["hush"]


def test_lettas_other_header_carries_a_key_too(idle_api: Api) -> None:
    for value in (f"password {cast.alice().key}", cast.alice().key):
        headers = {"x-bare-password": value}
        assert idle_api.get("/v1/agents", client=REMOTE, headers=headers).status == 200
    wrong = {"x-bare-password": "password wrong"}
    assert is_refused(idle_api.get("/v1/agents", client=REMOTE, headers=wrong))


def test_secrets_are_shown_to_admin_keys_only(api: Api) -> None:
    made = make_agent(api, secrets={"TOKEN": "hush"})
    path = f"/v1/agents/{made['id']}"
    hidden = [
        api.get(path),
        api.get("/v1/agents"),
        api.patch(path, {"name": "x"}),
        api.get(path, headers=cast.alice("read", "chat").headers),
    ]
    assert made["secrets"][0]["key"] == "TOKEN"
    assert made["secrets"][0]["value"] == ""
    assert not any(b"hush" in answer.body for answer in hidden)
    assert b"hush" in api.get(path, headers=cast.alice().headers).body
    document = (api.get(path).json()["id"]).removeprefix("agent-")
    assert Agent.objects.get(pk=document).secret_rows.get().value_encrypted != "hush"
