"""JSON schemas of Python annotations, read from the syntax tree: nothing is imported or evaluated."""

from __future__ import annotations

import ast
from typing import Any

PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "dict": {"type": "object"},
    "Dict": {"type": "object"},
    "Mapping": {"type": "object"},
    "object": {},
    "Any": {},
    "None": {"type": "null"},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
}
LISTS = frozenset(
    {"list", "List", "Sequence", "Iterable", "Collection", "tuple", "Tuple", "set", "Set"}
)
MAX_DEPTH = 12
MAX_SCHEMAS = 5_000  # of one source: classes that hold each other multiply


class UnknownType(ValueError):
    """The annotation names a type that has no schema here; the text is the annotation."""


class TypeReader:
    """Reads annotations; classes defined in the same source (models, enums, typed dicts) are known."""

    def __init__(self, tree: ast.Module) -> None:
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._left = MAX_SCHEMAS

    @staticmethod
    def tells_meaning(annotation: ast.expr | None) -> bool:
        """Tell whether the annotation itself has a description: `Annotated[str, "what it is"]`."""
        return annotation is not None and bool(_annotated_meaning(annotation))

    def schema(self, annotation: ast.expr, depth: int = 0) -> dict[str, Any]:
        """Return the schema. Raises UnknownType."""
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise UnknownType(ast.unparse(annotation)[:100])
        if isinstance(annotation, ast.Constant):
            return self._constant(annotation, depth)
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            return self._union([annotation.left, annotation.right], depth)
        if isinstance(annotation, ast.Subscript):
            return self._subscript(annotation, depth)
        name = _name(annotation)
        if name in PLAIN:
            return dict(PLAIN[name])
        if name in LISTS:
            return {"type": "array", "items": {}}
        if name in self._classes:
            return self._class(self._classes[name], depth + 1)
        raise UnknownType(ast.unparse(annotation)[:100])

    def _constant(self, annotation: ast.Constant, depth: int) -> dict[str, Any]:
        if annotation.value is None:
            return dict(PLAIN["None"])
        if not isinstance(annotation.value, str):
            raise UnknownType(ast.unparse(annotation)[:100])
        try:
            inner = ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UnknownType(annotation.value[:100]) from None
        return self.schema(inner, depth + 1)

    def _subscript(self, annotation: ast.Subscript, depth: int) -> dict[str, Any]:
        name, inner = _name(annotation.value), _elements(annotation.slice)
        if name == "Optional":
            return self.schema(inner[0], depth + 1)
        if name == "Union":
            return self._union(inner, depth)
        if name == "Annotated":
            meaning = _annotated_meaning(annotation)
            schema = self.schema(inner[0], depth + 1)
            return {**schema, "description": meaning} if meaning else schema
        if name == "Literal":
            values = [value.value for value in inner if isinstance(value, ast.Constant)]
            return _enum(values, ast.unparse(annotation))
        if name in LISTS:
            return {"type": "array", "items": self.schema(inner[0], depth + 1)}
        if name in ("dict", "Dict", "Mapping"):
            values_schema = self.schema(inner[-1], depth + 1)
            return {"type": "object", "additionalProperties": values_schema or True}
        raise UnknownType(ast.unparse(annotation)[:100])

    def _union(self, options: list[ast.expr], depth: int) -> dict[str, Any]:
        """Return the schema of the options; None among them only says that the argument may be left out."""
        some = [option for option in options if not _is_none(option)]
        schemas = [self.schema(option, depth + 1) for option in some]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _class(self, node: ast.ClassDef, depth: int) -> dict[str, Any]:
        if {_name(base) for base in node.bases} & {"Enum", "StrEnum", "IntEnum"}:
            values = [
                item.value.value
                for item in node.body
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)
            ]
            return _enum(values, node.name)
        properties: dict[str, Any] = {}
        required = []
        for item in node.body:
            if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
                continue
            schema = self.schema(item.annotation, depth + 1)
            meaning = _field_meaning(item.value)
            properties[item.target.id] = {**schema, "description": meaning} if meaning else schema
            if _is_required(item.value):
                required.append(item.target.id)
        return {"type": "object", "properties": properties, "required": required}


def _name(node: ast.expr) -> str:
    """Return the last part of a dotted name, "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) and node.elts else [node]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _enum(values: list[Any], text: str) -> dict[str, Any]:
    kinds = {str: "string", int: "integer", bool: "boolean", float: "number"}
    types = {kinds.get(type(value)) for value in values}
    if not values or None in types:
        raise UnknownType(text[:100])
    return {"type": types.pop(), "enum": values} if len(types) == 1 else {"enum": values}


def _field_keyword(value: ast.expr | None, name: str) -> ast.expr | None:
    if not isinstance(value, ast.Call) or _name(value.func) != "Field":
        return None
    return next((word.value for word in value.keywords if word.arg == name), None)


def _field_meaning(value: ast.expr | None) -> str:
    found = _field_keyword(value, "description")
    return str(found.value) if isinstance(found, ast.Constant) else ""


def _is_required(value: ast.expr | None) -> bool:
    if value is None:
        return True
    if not isinstance(value, ast.Call) or _name(value.func) != "Field":
        return False
    if any(word.arg in ("default", "default_factory") for word in value.keywords):
        return False
    return not value.args or (
        isinstance(value.args[0], ast.Constant) and value.args[0].value is Ellipsis
    )


def _annotated_meaning(annotation: ast.expr) -> str:
    if not isinstance(annotation, ast.Subscript) or _name(annotation.value) != "Annotated":
        return ""
    for extra in _elements(annotation.slice)[1:]:
        if isinstance(extra, ast.Constant) and isinstance(extra.value, str):
            return extra.value
        if _field_meaning(extra):
            return _field_meaning(extra)
    return ""
