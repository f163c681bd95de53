"""Prompts for models: `.md` files with a header that says what they are for and which variables they take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FENCE = "---\n"


@dataclass(frozen=True)
class Prompt:
    """One prompt. Its text has a place `{{name}}` for each of `variables`."""

    purpose: str
    variables: frozenset[str]
    text: str

    def render(self, **values: object) -> str:
        """Return the text with every variable filled in; what is filled in is not read again.

        Raises ValueError when a variable is missing or unknown.
        """
        if set(values) != self.variables:
            raise ValueError(f"The prompt takes {sorted(self.variables)}, not {sorted(values)}.")
        parts = self.text.split("{{")
        filled = [parts[0]]
        for part in parts[1:]:
            name, _, rest = part.partition("}}")
            filled.append(f"{values[name]}{rest}")
        return "".join(filled)


def load_prompt(path: Path) -> Prompt:
    """Read a prompt file. Raises ValueError when its header and its text do not agree."""
    _, header, text = path.read_text(encoding="utf-8").split(FENCE, 2)
    fields = dict(line.split(":", 1) for line in header.splitlines())
    variables = frozenset(filter(None, (n.strip() for n in fields["variables"].split(","))))
    used = {part.partition("}}")[0] for part in text.split("{{")[1:]}
    if used != variables:
        raise ValueError(
            f"{path}: the header names {sorted(variables)}, the text uses {sorted(used)}."
        )
    return Prompt(fields["purpose"].strip(), variables, text.strip())
