"""The tools of letta-client 1.7.12, run with that version on the path. Prints one JSON object with what it saw."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

from letta_client import Letta
from letta_client.types.tool import BaseTool
from pydantic import BaseModel, Field

client = Letta(base_url=sys.argv[1], api_key="local-dev-key")


def add_two_numbers(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first one
        b: the second one
    """
    return a + b


class Wish(BaseModel):
    """Arguments."""

    name: str = Field(description="of whom")
    count: int = Field(description="how often")


class Greet(BaseTool):
    """Greets."""

    id: str = "tool-greet"  # required by this client, and not sent
    name: str = "greet"
    args_schema: type[BaseModel] = Wish
    description: str = "Greets somebody."
    tags: list[str] = ["old"]

    def run(self, name: str, count: int) -> str:
        """Greet."""
        return f"Hello {name}! " * count


first = client.tools.upsert_from_function(func=add_two_numbers, tags=["old"])
again = client.tools.upsert_from_function(func=add_two_numbers, tags=["old", "again"])
wished = client.tools.add(tool=Greet())
agent = client.agents.create(
    name="old", model="openai/double", tool_ids=[first.id, wished.id], include_base_tools=False
)
answer = client.agents.messages.create(
    agent.id, messages=[{"role": "user", "content": 'hi ## {"text": "Hello from before."}'}]
)
attached = [tool.name for tool in client.agents.tools.list(agent.id)]
print(
    json.dumps(
        {
            "version": version("letta-client"),
            "is_same": first.id == again.id,
            "tags": again.tags,
            "schema": first.json_schema,
            "wish": wished.json_schema,
            "attached": attached,
            "said": [m.content for m in answer.messages if m.message_type == "assistant_message"],
            "found": [tool.name for tool in client.tools.list(name="add_two_numbers")],
        }
    )
)
