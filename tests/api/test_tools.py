"""Tools: their schema out of the source, who has them, and how they are found, changed and run."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.actor import keyless_actor
from agents.models import Agent, Tool
from agents.services.memory import agent_dir
from agents.tool_selectors import ToolFilter, filter_tools
from agents.tools.source import MAX_SOURCE_CHARS, SchemaNotDerived, describe
from souveraine.testing import cast
from tests.api.routes import SOURCE
from tests.conftest import Api

MODELS = '''
from typing import Annotated, Literal, Optional
from pydantic import BaseModel, Field

class Kind(str, Enum):
    A = "a"
    B = "b"

class Item(BaseModel):
    sku: str = Field(..., description="stock number")
    kind: Kind = Kind.A

def _helper(x):
    return x

async def order(
    items: list[Item],
    mode: Literal["fast", "slow"] = "fast",
    note: Annotated[Optional[str], "a note"] = None,
    *,
    prices: dict[str, float] | None = None,
    agent_state: "AgentState" = None,
) -> str:
    """Order things.

    At once.

    Args:
        items (list[Item]): what to order,
            in order
        mode: how fast
        prices (dict): price by sku

    Returns:
        str: a receipt
    """
'''
NUMPY = """Do.

    Parameters
    ----------
    n : int
        the n

    Returns
    -------
    int
    """
REST = """Do.

    :param int n: the
        n
    :returns: x
    """
FORMS = [
    f'def f(n: int):\n    """{NUMPY}"""',
    f'def f(n: int):\n    """{REST}"""',
    'def f(n: Annotated[int, Field(description="the n")]):\n    """Do."""',
]
MISSING = {
    "def f(n: int):\n    return n": "has no docstring",
    'def f(n):\n    """Do.\n\n    Args:\n        n: x\n    """': "without a type: n",
    'def f(n: int, m: int):\n    """Do."""': "what these arguments mean: n, m",
    'def f(n: Widget):\n    """Do.\n\n    Args:\n        n: x\n    """': "has the type Widget",
    'def f(*all: int):\n    """Do."""': "any number of arguments",
    "x = 1": "has no function",
    "def f(": "not valid Python",
    "def ünï():\n    'Do.'": "no name for a tool",
    "x = " + "(" * 5000: "",
    "#" * (MAX_SOURCE_CHARS + 1): "at most",
}


def create(api: Api, name: str = "roll", **fields: Any) -> dict[str, Any]:
    answer = api.post("/v1/tools", {"source_code": SOURCE.replace("roll", name), **fields})
    assert answer.status == 200, answer.body
    return dict(answer.json())


def test_it_works_and_the_same_name_is_the_same_tool(idle_api: Api) -> None:
    tool = create(idle_api, tags=["dice"])
    schema = {"n": {"type": "integer", "description": "sides"}}
    assert tool["json_schema"]["parameters"]["properties"] == schema
    assert (tool["name"], tool["description"], tool["tags"]) == ("roll", "Roll.", ["dice"])
    again = idle_api.request("PUT", "/v1/tools/", {"source_code": SOURCE, "return_char_limit": 9})
    assert again.json()["id"] == tool["id"]
    assert (again.json()["return_char_limit"], again.json()["tags"]) == (9, ["dice"])
    assert idle_api.get(f"/v1/tools/{tool['id']}").json() == again.json()
    assert idle_api.delete(f"/v1/tools/{tool['id']}").status == 200
    assert idle_api.get(f"/v1/tools/{tool['id']}").status == 404


def test_the_schema_comes_from_annotations_docstring_and_classes_without_running_them() -> None:
    found = describe("raise SystemExit\n" + MODELS).json_schema
    assert (found["name"], found["description"]) == (
        "order",
        "Order things.\n\nAt once.\n\nReturns:\n    str: a receipt",
    )
    item = {
        "type": "object",
        "properties": {
            "sku": {"type": "string", "description": "stock number"},
            "kind": {"type": "string", "enum": ["a", "b"]},
        },
        "required": ["sku"],
    }
    assert found["parameters"] == {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": item, "description": "what to order, in order"},
            "mode": {"type": "string", "enum": ["fast", "slow"], "description": "how fast"},
            "note": {"type": "string", "description": "a note"},
            "prices": {
                "type": "object",
                "additionalProperties": {"type": "number"},
                "description": "price by sku",
            },
        },
        "required": ["items"],
    }


@pytest.mark.parametrize("source", FORMS)
def test_docstrings_of_every_common_form_are_read(source: str) -> None:
    parameters = describe(source).json_schema["parameters"]
    assert parameters["properties"] == {"n": {"type": "integer", "description": "the n"}}


def test_what_is_missing_is_said_and_nothing_is_stored(idle_api: Api) -> None:
    before = Tool.objects.count()
    for source, text in MISSING.items():
        answer = idle_api.post("/v1/tools", {"source_code": source})
        assert answer.status == 400, source[:80]
        detail = answer.json()["detail"]
        assert detail.startswith("Failed to derive json schema: "), detail
        assert text in detail
    assert Tool.objects.count() == before


def test_a_pydantic_schema_replaces_the_docstring(idle_api: Api) -> None:
    """As `upsert_from_function(args_schema=…)` and `BaseTool` of letta-client 1.7 send it."""
    entry = {"type": "object", "properties": {"sku": {"type": "string"}}}
    schema = {
        "$defs": {"Entry": entry},
        "properties": {"data": {"$ref": "#/$defs/Entry"}},
        "required": ["data"],
        "type": "object",
    }
    source = "def manage(data: Entry) -> bool:\n    return True"
    tool = idle_api.request(
        "PUT", "/v1/tools", {"source_code": source, "args_json_schema": schema}
    ).json()
    assert tool["json_schema"]["parameters"]["properties"] == {"data": entry}
    assert tool["args_json_schema"] == schema
    bomb: dict[str, Any] = {"A0": {"type": "object"}}
    for i in range(1, 60):
        link = {"$ref": f"#/$defs/A{i - 1}"}
        bomb[f"A{i}"] = {"type": "object", "properties": {"a": link, "b": link}}
    loop = {"A": {"properties": {"a": {"$ref": "#/$defs/A"}}}}
    for definitions, name, text in ((bomb, "A59", "too large"), (loop, "A", "contains itself")):
        bad = {"$defs": definitions, "properties": {"x": {"$ref": f"#/$defs/{name}"}}}
        with pytest.raises(SchemaNotDerived, match=text):
            describe(source, args_json_schema=bad)


def test_names_of_built_in_tools_and_their_rows_are_kept(idle_api: Api) -> None:
    taken = idle_api.post("/v1/tools", {"source_code": SOURCE.replace("roll", "memory_insert")})
    assert taken.status == 409
    builtin = idle_api.get("/v1/tools?name=memory_insert").json()[0]
    for answer in (
        idle_api.patch(f"/v1/tools/{builtin['id']}", {"description": "mine"}),
        idle_api.delete(f"/v1/tools/{builtin['id']}"),
    ):
        assert answer.status == 400
        assert "built-in" in answer.json()["detail"]
    assert idle_api.get(f"/v1/tools/{builtin['id']}").json() == builtin


def test_update_derives_anew_and_keeps_the_rest(api: Api, agent: dict[str, Any]) -> None:
    tool = create(api, tags=["dice"], pip_requirements=[{"name": "numpy"}])
    path = f"/v1/tools/{tool['id']}"
    changed = api.patch(path, {"description": "Throw."}).json()
    assert changed["json_schema"]["description"] == changed["description"] == "Throw."
    assert changed["json_schema"]["parameters"] == tool["json_schema"]["parameters"]
    assert changed["pip_requirements"] == [{"name": "numpy"}]
    changed = api.patch(path, {"source_code": SOURCE.replace("sides", "faces")}).json()
    assert changed["json_schema"]["parameters"]["properties"]["n"]["description"] == "faces"
    assert changed["tags"] == ["dice"]
    assert (
        api.patch(path, {"source_code": SOURCE.replace("roll", "throw")}).json()["name"] == "throw"
    )
    create(api, "roll")
    assert api.patch(path, {"source_code": SOURCE}).status == 409, "the name is taken"
    api.patch(f"/v1/agents/{agent['id']}/tools/attach/{tool['id']}")
    renamed = api.patch(path, {"source_code": SOURCE.replace("roll", "toss")})
    assert renamed.status == 409
    assert "rules and approvals" in renamed.json()["detail"]
    assert api.patch(path, {"source_code": "def throw("}).status == 400
    assert api.get(path).json()["name"] == "throw"


def test_filters_of_list_and_count_and_constant_queries(idle_api: Api) -> None:
    first, second = create(idle_api, "alpha"), create(idle_api, "beta")
    builtin = Tool.objects.filter(owner=None).count()

    def names(query: str) -> list[str]:
        found = idle_api.get(f"/v1/tools?limit=100&order=asc&{query}").json()
        count = idle_api.get(f"/v1/tools/count?{query}").json()
        assert count == len(found)
        return [tool["name"] for tool in found]

    assert len(names("")) == builtin + 2
    assert names("names=alpha&names=beta") == ["alpha", "beta"]
    assert names(f"tool_ids={second['id']}") == ["beta"]
    assert names("search=LPH") == ["alpha"]
    assert names("tool_types=custom") == names("exclude_letta_tools=true") == ["alpha", "beta"]
    assert len(names("exclude_tool_types=custom")) == builtin
    assert len(names("return_only_letta_tools=true")) == builtin
    assert idle_api.get("/v1/tools?tool_ids=nope").status == 422
    page = idle_api.get(f"/v1/tools?order=desc&limit=1&after={second['id']}").json()
    assert [tool["id"] for tool in page] == [first["id"]]
    with CaptureQueriesContext(connection) as queries:
        list(filter_tools(keyless_actor(), ToolFilter(search="a", tool_types=["custom"])))
    assert len(queries) == 2, "the actor and the tools"


def test_search_ranks_names_before_descriptions(idle_api: Api) -> None:
    create(idle_api, "dice", tags=["game"])
    create(idle_api, "other", description="Throws dice, too.")
    found = idle_api.post("/v1/tools/search", {"query": "dice", "search_mode": "fts"}).json()
    assert [entry["tool"]["name"] for entry in found] == ["dice", "other"]
    assert [entry["fts_rank"] for entry in found] == [1, 2]
    found = idle_api.post("/v1/tools/search", {"query": "dice", "tags": ["game"]}).json()
    assert [entry["tool"]["name"] for entry in found] == ["dice"]
    assert idle_api.post("/v1/tools/search", {"query": "'%_\" NEAR("}).status == 200
    assert idle_api.post("/v1/tools/search", {"search_mode": "vector"}).status == 400


def test_attach_brings_the_approval_rule_and_detach_takes_the_tool(
    api: Api, agent: dict[str, Any]
) -> None:
    tool = create(api, default_requires_approval=True)
    path = f"/v1/agents/{agent['id']}/tools"
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: api.patch(f"{path}/attach/{tool['id']}"), range(4)))
    assert {answer.status for answer in answers} == {200}
    state = answers[0].json()
    assert [t["name"] for t in state["tools"]].count("roll") == 1
    rule = {"tool_name": "roll", "type": "requires_approval", "prompt_template": None}
    assert state["tool_rules"] == [rule]
    listed = api.get(f"{path}?order=asc&limit=100").json()
    assert listed[-1]["id"] == tool["id"]
    document = agent_dir(Agent.objects.get(name="golden-agent")) / "agent.json"
    assert "roll" in json.loads(document.read_text())["tools"]
    state = api.patch(f"{path}/detach/{tool['id']}").json()
    assert "roll" not in [t["name"] for t in state["tools"]]
    assert api.patch(f"{path}/detach/{tool['id']}").status == 200
    api.patch(f"{path}/attach/{tool['id']}")
    api.delete(f"/v1/tools/{tool['id']}")
    assert "roll" not in json.loads(document.read_text())["tools"]


def test_built_in_tools_run_by_hand_and_custom_code_says_why_not(
    api: Api, agent: dict[str, Any]
) -> None:
    path = f"/v1/agents/{agent['id']}/tools"
    done = api.post(f"{path}/memory_insert/run", {"args": {"label": "human", "new_string": "Jam"}})
    assert done.json()["status"] == "success"
    human = next(b for b in done.json()["agent_state"]["blocks"] if b["label"] == "human")
    assert human["value"] == "Name: Bob\nJam"
    wrong = api.post(f"{path}/memory_insert/run", {"args": {"label": 1}}).json()
    assert (wrong["status"], wrong["func_return"][:15]) == ("error", "Wrong arguments")
    missing = api.post(f"{path}/nope/run", {})
    assert missing.status == 404
    assert "memory_insert" in missing.json()["detail"]
    tool = create(api)
    api.patch(f"{path}/attach/{tool['id']}")
    for answer in (
        api.post(f"{path}/roll/run", {"args": {"n": 6}}),
        api.post("/v1/tools/run", {"source_code": SOURCE, "args": {"n": 6}}),
    ):
        assert answer.status == 400
        assert "client_tools" in answer.json()["detail"]
    assert api.post("/v1/tools/run", {"source_code": "def f(", "args": {}}).status == 400


def test_two_people_have_tools_of_the_same_name(idle_api: Api) -> None:
    body, tools = {"source_code": SOURCE}, set()
    for person in (cast.alice(), cast.charlie()):
        tools.add(idle_api.post("/v1/tools", body, headers=person.headers).json()["id"])
        listed = idle_api.get("/v1/tools?name=roll", headers=person.headers).json()
        assert [tool["id"] in tools for tool in listed] == [True]
    assert len(tools) == 2


BASE_26 = [
    "send_message",
    "conversation_search",
    "archival_memory_insert",
    "archival_memory_search",
    "core_memory_append",
    "core_memory_replace",
    "memory",
    "memory_apply_patch",
    "memory_insert",
    "memory_replace",
    "memory_rethink",
    "memory_finish_edits",
    "web_search",
    "fetch_webpage",
    "run_code",
    "run_code_with_tools",
    "open_files",
    "grep_files",
    "semantic_search_files",
    "send_message_to_agent_async",
    "send_message_to_agent_and_wait_for_reply",
    "send_message_to_agents_matching_tags",
    "store_memories",
    "rethink_user_memory",
    "finish_rethinking_memory",
    "search_memory",
]


def test_all_26_base_tools_exist_and_work_or_say_why_not(api: Api) -> None:
    agent = api.post("/v1/agents", {"model": "fake/fake-model", "tools": BASE_26}).json()
    assert {tool["name"] for tool in agent["tools"]} >= set(BASE_26)
    path = f"/v1/agents/{agent['id']}/tools"

    def run(name: str, **args: str) -> tuple[str, str]:
        answer = api.post(f"{path}/{name}/run", {"args": args}).json()
        return answer["status"], answer["func_return"]

    assert run("core_memory_append", label="human", content="Bob")[0] == "success"
    assert run("core_memory_replace", label="human", old_content="Bob", new_content="Al")[1] == "Al"
    assert run("memory_rethink", label="human", new_memory="Eve")[1] == "Eve"
    assert run("memory_finish_edits")[0] == "success"
    assert run("send_message", message="hi") == (
        "error",
        "Nothing was sent: write your answer as plain text, it goes to the person directly.",
    )
    for tool in agent["tools"]:
        if tool["name"] in ("run_code", "search_memory"):
            args = dict.fromkeys(tool["json_schema"]["parameters"]["required"], "x")
            status, text = run(tool["name"], **args)
            assert status == "error"
            assert "server" in text
