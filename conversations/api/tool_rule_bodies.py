"""The tool rules that an agent can be given (contract letta-api §13, ToolRule)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

ToolName = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class _Rule(BaseModel):
    model_config = ConfigDict(extra="ignore")

    tool_name: ToolName
    prompt_template: Annotated[str, StringConstraints(max_length=100_000)] | None = None


class InitToolRule(_Rule):
    """The turn's first call is of this tool; `args` replace the model's."""

    type: Literal["run_first"]
    args: dict[str, object] | None = None


class TerminalToolRule(_Rule):
    """The turn ends when the tool has succeeded."""

    type: Literal["exit_loop"]


class ContinueToolRule(_Rule):
    """The turn goes on after the tool, also beside one that ends it."""

    type: Literal["continue_loop"]


class RequiredBeforeExitToolRule(_Rule):
    """The turn does not end before the tool was called."""

    type: Literal["required_before_exit"]


class RequiresApprovalToolRule(_Rule):
    """Calls wait for a client."""

    type: Literal["requires_approval"]


class ToolCallNode(BaseModel):
    """Arguments of a child that replace the model's."""

    model_config = ConfigDict(extra="ignore")

    name: ToolName
    args: dict[str, object] | None = None


class ChildToolRule(_Rule):
    """After the tool only its children may be called."""

    type: Literal["constrain_child_tools"]
    children: list[ToolName]
    child_arg_nodes: list[ToolCallNode] | None = None

    @model_validator(mode="after")
    def _nodes_are_children(self) -> ChildToolRule:
        strangers = [n.name for n in self.child_arg_nodes or () if n.name not in self.children]
        if strangers:
            raise ValueError(f"child_arg_nodes names tools that are no children: {strangers}.")
        return self


class ParentToolRule(_Rule):
    """The children may be called only right after the tool."""

    type: Literal["parent_last_tool"]
    children: list[ToolName]


class ConditionalToolRule(_Rule):
    """What the tool returned decides which one comes next."""

    type: Literal["conditional"]
    child_output_mapping: dict[str, ToolName]
    default_child: ToolName | None = None
    require_output_mapping: bool = False


class MaxCountPerStepToolRule(_Rule):
    """The tool may be called so many times in a turn."""

    type: Literal["max_count_per_step"]
    max_count_limit: Annotated[int, Field(ge=0, le=1_000_000)]


ToolRule = Annotated[
    InitToolRule
    | TerminalToolRule
    | ContinueToolRule
    | RequiredBeforeExitToolRule
    | RequiresApprovalToolRule
    | ChildToolRule
    | ParentToolRule
    | ConditionalToolRule
    | MaxCountPerStepToolRule,
    Field(discriminator="type"),
]
