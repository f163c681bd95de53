"""A tool's JSON schema from its Python source, read with `ast`: the source is never run.

Used when a tool is created or changed (`agents.services.tools`) and by `POST /v1/tools/generate-schema`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from agents.tools.annotations import TypeReader, UnknownType
from agents.tools.docstrings import read_docstring
from souveraine.errors import InvalidArgument

Function = ast.FunctionDef | ast.AsyncFunctionDef
GIVEN_BY_THE_SERVER = frozenset({"self", "agent_state"})
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_SOURCE_CHARS = 200_000
MAX_NODES = 20_000  # of a schema whose references are resolved


class SchemaNotDerived(InvalidArgument):
    """The source or its docstring does not tell enough. The text is that of the old server."""

    code = "SCHEMA_NOT_DERIVED"
    prefix = ""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Failed to derive json schema: {reason}")


@dataclass(frozen=True)
class Described:
    """What a function says of itself."""

    name: str
    description: str
    json_schema: dict[str, Any]


def describe(
    source_code: str,
    *,
    description: str | None = None,
    args_json_schema: dict[str, Any] | None = None,
) -> Described:
    """Return the name, description and schema of the tool: the last public function of the source.

    With `args_json_schema` the arguments are taken from there and need no docstring. Raises
    SchemaNotDerived, which says what is missing.
    """
    tree = _parsed(source_code)
    function = _tool_function(tree)
    check_name(function.name)
    told, meanings = read_docstring(ast.get_docstring(function, clean=False) or "")
    if args_json_schema:
        parameters = inlined(args_json_schema)
    else:
        if not told and not description:
            raise SchemaNotDerived(
                f"function '{function.name}' has no docstring. Say what it does in its first line, and what each "
                "argument means under 'Args:'; or pass json_schema or args_json_schema."
            )
        parameters = _parameters(function, meanings, TypeReader(tree))
    text = description or told
    return Described(
        function.name,
        text,
        {"name": function.name, "description": text, "parameters": parameters},
    )


def function_names(source_code: str) -> set[str]:
    """Return the names of the functions of the source. Raises SchemaNotDerived when it cannot be read."""
    return {node.name for node in _parsed(source_code).body if isinstance(node, Function)}


def check_name(name: str) -> None:
    """Raise SchemaNotDerived for a name that providers refuse."""
    if not NAME.fullmatch(name):
        raise SchemaNotDerived(
            f"'{name[:100]}' is no name for a tool: use 1 to 64 letters, digits, '_' and '-' of ASCII."
        )


def _parsed(source_code: str) -> ast.Module:
    if len(source_code) > MAX_SOURCE_CHARS:
        raise SchemaNotDerived(
            f"the source has {len(source_code)} characters; at most {MAX_SOURCE_CHARS} are allowed."
        )
    try:
        return ast.parse(source_code)
    except SyntaxError as exc:
        raise SchemaNotDerived(
            f"the source is not valid Python: {exc.msg} (line {exc.lineno})."
        ) from None
    except (ValueError, RecursionError, MemoryError):
        raise SchemaNotDerived("the source cannot be read: it is nested too deeply.") from None


def _tool_function(tree: ast.Module) -> Function:
    functions = [node for node in tree.body if isinstance(node, Function)]
    if not functions:
        raise SchemaNotDerived("the source has no function. A tool is a function: def name(…):")
    public = [function for function in functions if not function.name.startswith("_")]
    return (public or functions)[-1]


def _parameters(function: Function, meanings: dict[str, str], reader: TypeReader) -> dict[str, Any]:
    arguments = function.args
    if arguments.vararg or arguments.kwarg:
        star = arguments.vararg or arguments.kwarg
        assert star is not None
        raise SchemaNotDerived(
            f"function '{function.name}' takes any number of arguments (*{star.arg}), which a model cannot be told. "
            "Name each argument, or pass json_schema."
        )
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [
        *zip(positional, [*defaults, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    wanted = [(arg, default) for arg, default in pairs if arg.arg not in GIVEN_BY_THE_SERVER]
    _refuse_untold(function.name, [arg for arg, _ in wanted], meanings)
    properties = {}
    for arg, _ in wanted:
        assert arg.annotation is not None
        try:
            schema = reader.schema(arg.annotation)
        except UnknownType as exc:
            raise SchemaNotDerived(
                f"argument '{arg.arg}' of '{function.name}' has the type {exc}, which is not known here. Use plain "
                "types (str, int, float, bool, list, dict, Literal, Optional, or a class in the same source), or pass "
                "args_json_schema."
            ) from None
        properties[arg.arg] = {
            **schema,
            "description": meanings.get(arg.arg) or schema.get("description", ""),
        }
    required = [arg.arg for arg, default in wanted if default is None]
    return {"type": "object", "properties": properties, "required": required}


def _refuse_untold(name: str, args: list[ast.arg], meanings: dict[str, str]) -> None:
    """Name all that is missing at once."""
    untyped = [arg.arg for arg in args if arg.annotation is None]
    if untyped:
        raise SchemaNotDerived(
            f"function '{name}' has arguments without a type: {', '.join(untyped)}. Write for example "
            f"'{untyped[0]}: str'."
        )
    untold = [
        arg.arg
        for arg in args
        if not meanings.get(arg.arg) and not TypeReader.tells_meaning(arg.annotation)
    ]
    if untold:
        raise SchemaNotDerived(
            f"the docstring of '{name}' does not tell what these arguments mean: {', '.join(untold)}. Add under "
            f"'Args:' a line '{untold[0]}: …' for each."
        )


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an object schema with its `$defs` put in their places, which every provider understands.

    Raises SchemaNotDerived for one that is no object or whose definitions contain themselves.
    """
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    body = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    found = _Inliner(definitions).put(body, ())
    if found.get("type", "object") != "object" or not isinstance(found.get("properties", {}), dict):
        raise SchemaNotDerived("args_json_schema must describe an object with `properties`.")
    return {"type": "object", "properties": {}, "required": [], **found}


class _Inliner:
    """Puts definitions in their places, up to `MAX_NODES`: a few references can name a great many."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions, self._left = definitions, MAX_NODES

    def put(self, node: Any, inside: tuple[str, ...]) -> Any:
        self._left -= 1
        if self._left < 0:
            raise SchemaNotDerived(f"args_json_schema is too large (over {MAX_NODES} parts).")
        if isinstance(node, list):
            return [self.put(item, inside) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return {key: self.put(value, inside) for key, value in node.items()}
        name = reference.rpartition("/")[2]
        if name in inside:
            raise SchemaNotDerived(f"args_json_schema: '{name}' contains itself.")
        if name not in self._definitions:
            raise SchemaNotDerived(
                f"args_json_schema refers to '{name}', which it does not define."
            )
        beside = {key: value for key, value in node.items() if key != "$ref"}
        target = self.put(self._definitions[name], (*inside, name))
        return {**target, **beside} if isinstance(target, dict) else target
