from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from souveraine.supervisor import private_redis, redis
from souveraine.supervisor.processes import Console
from souveraine.supervisor.redis import PrivateRedis, RedisUnavailable, choose, runtime_dir
from souveraine.supervisor.supervisor import Supervisor

BUNDLED = redis.bundled_binary()
SYSTEM = choose("", "").binary


def found(name: str) -> str:
    return f"/found/{name.removeprefix('/')}"


def missing(name: str) -> None:
    return None


def wheel() -> str:
    return "/wheel/redis-server"


def no_wheel() -> str:
    return ""


def test_redis_url_wins_over_everything() -> None:
    choice = choose("redis://elsewhere:1", "bundled", found, wheel)
    assert (choice.url, choice.binary) == ("redis://elsewhere:1", "")


def test_the_setting_wins_over_path() -> None:
    assert choose("", "bundled", found, wheel).binary == "/wheel/redis-server"
    assert choose("", "/opt/redis-server", found, wheel).binary == "/found/opt/redis-server"


def test_path_wins_over_the_wheel() -> None:
    assert choose("", "", found, wheel).binary == "/found/redis-server"
    assert choose("", "", missing, wheel).binary == "/wheel/redis-server"


def test_nothing_found_says_what_to_install() -> None:
    with pytest.raises(RedisUnavailable, match=r"apt install redis-server.*REDIS_URL"):
        choose("", "", missing, no_wheel)
    with pytest.raises(RedisUnavailable, match="apt install"):
        choose("", "bundled", found, no_wheel)


def test_a_named_binary_that_is_missing_is_an_error_and_not_replaced() -> None:
    with pytest.raises(RedisUnavailable, match="SOUVERAINE_REDIS_SERVER names '/no/such'"):
        choose("", "/no/such", missing, wheel)


def test_socket_directory_is_private_short_and_the_same_each_time(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 50) / "data"
    first = runtime_dir(data, {})
    assert first == runtime_dir(data, {})
    assert first != runtime_dir(tmp_path / "other", {})
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    assert len(os.fsencode(first / redis.SOCKET_NAME)) <= redis.MAX_SOCKET_PATH_BYTES


def test_a_base_that_would_make_the_path_too_long_is_passed_over(tmp_path: Path) -> None:
    base = tmp_path / ("x" * 90)
    base.mkdir()
    assert base not in runtime_dir(tmp_path, {"XDG_RUNTIME_DIR": str(base)}).parents


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    base, target = tmp_path / "run", tmp_path / "target"
    base.mkdir()
    target.mkdir()
    expected = runtime_dir(tmp_path, {"XDG_RUNTIME_DIR": str(base)})
    expected.rmdir()
    expected.symlink_to(target)
    found_dir = runtime_dir(tmp_path, {"XDG_RUNTIME_DIR": str(base)})
    assert found_dir.resolve() != target
    assert stat.S_IMODE(found_dir.lstat().st_mode) == 0o700


def binaries() -> list[str]:
    return sorted({b for b in (BUNDLED, SYSTEM) if b})


def start(supervisor: Supervisor, server: PrivateRedis, console: Console) -> None:
    private_redis.start(supervisor, server, 0)
    private_redis.wait_until_ready(supervisor, server, 0, console, seconds=10)


@pytest.mark.parametrize("binary", binaries())
def test_private_redis_keeps_its_data_over_a_restart(
    tmp_path: Path, binary: str, console: Console
) -> None:
    import redis as client_library

    data = tmp_path / "data dir with spaces"
    (data / "logs").mkdir(parents=True)
    server = PrivateRedis(binary, data, runtime_dir(data, {}))
    for expected in (None, b"kept"):
        with Supervisor(console, data / "logs") as supervisor:
            start(supervisor, server, console)
            assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700
            with client_library.Redis.from_url(server.url) as client:
                assert client.get("key") == expected
                client.set("key", "kept")
                assert client.config_get("port") == {"port": "0"}
                assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    assert not server.is_ready()


@pytest.mark.skipif(not BUNDLED, reason="the bundled Redis has no wheel for this platform")
def test_files_it_cannot_read_are_moved_aside_with_a_message(
    tmp_path: Path, supervisor: Supervisor, console: Console, output: object
) -> None:
    (tmp_path / "logs").mkdir()
    server = PrivateRedis(BUNDLED, tmp_path, runtime_dir(tmp_path, {}))
    server.directory.mkdir()
    # The head of a snapshot in a format version that no Redis has yet.
    (server.directory / "appendonly.aof").write_bytes(b"REDIS9999\xff" + b"\0" * 8)
    start(supervisor, server, console)
    assert server.is_ready()
    moved = next(tmp_path.glob("redis-unreadable-*"))
    assert (moved / "appendonly.aof").read_bytes().startswith(b"REDIS9999")
    assert f"they are now in {moved}" in output.getvalue().replace("\n", " ")  # type: ignore[attr-defined]


def test_a_binary_that_cannot_run_is_an_error_and_moves_nothing(
    tmp_path: Path, supervisor: Supervisor, console: Console
) -> None:
    (tmp_path / "logs").mkdir()
    server = PrivateRedis("/bin/false", tmp_path, runtime_dir(tmp_path, {}))
    with pytest.raises(RedisUnavailable, match="/bin/false"):
        start(supervisor, server, console)
    assert not list(tmp_path.glob("redis-unreadable-*"))


def test_an_external_redis_that_does_not_answer_is_named_without_its_password() -> None:
    environment = dict(os.environ) | {"REDIS_URL": "redis://:secretword@127.0.0.1:1/0"}
    with pytest.raises(RedisUnavailable, match="REDIS_URL does not answer") as caught:
        private_redis.check_external(environment, seconds=0)
    assert "secretword" not in str(caught.value)
