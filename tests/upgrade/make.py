"""Make the fixture of a release: a data directory with a little of everything, packed.

    python -m tests.upgrade.make tests/upgrade/0.1.0.tar.gz

Run it once, with the released version; later versions must start on it (test_upgrade.py).
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

import httpx

from tests.e2e.conftest import Serve, model_double
from tests.e2e.test_python_sdk import script

KEPT = ("database.sqlite3", "agents", "secret_key")


def fill(server: Serve) -> None:
    """Make two agents with a shared block, talk, use a tool, fail once."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        block = client.post(
            "/v1/blocks/", json={"label": "project", "value": "Violin", "tags": ["t"]}
        ).json()
        first, second = (
            client.post(
                "/v1/agents/",
                json={
                    "name": name,
                    "model": "openai/double",
                    "tags": ["old", name],
                    "block_ids": [block["id"]],
                    "metadata": {"k": 1},
                    "secrets": {"TOKEN": "hidden"},
                    "memory_blocks": [{"label": "human", "value": "Name: Bob"}],
                },
            ).json()["id"]
            for name in ("Ani", "Ben")
        )
        tool = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "Likes jam"}}
        for agent, text in (
            (first, script("I like jam", tool=tool, text="Noted.")),
            (first, script("My violin is from 1780", text="A fine age.")),
            (second, script("hello", text="Hi.")),
            (second, script("fail", status=400)),
        ):
            client.post(
                f"/v1/agents/{agent}/messages",
                json={"messages": [{"role": "user", "content": text}]},
            )
        conversation = client.post(
            f"/v1/conversations/?agent_id={first}", json={"summary": "Old talk"}
        ).json()["id"]
        client.post(
            f"/v1/conversations/{conversation}/messages", json={"input": "In a conversation"}
        )


def main(target: Path) -> None:
    """Start a server on an empty directory, fill it, stop it, pack what matters."""
    with tempfile.TemporaryDirectory() as folder, model_double() as double:
        server = Serve(Path(folder) / "data", {"OPENAI_BASE_URL": double})
        server.start()
        try:
            fill(server)
        finally:
            server.stop()
        with tarfile.open(target, "w:gz") as archive:
            for name in KEPT:
                archive.add(server.data_dir / name, name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
