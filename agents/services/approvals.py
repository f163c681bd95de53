"""Which tools of an agent need a client's approval, and what was remembered about them."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.actor import Actor
from agents.models import Agent, RememberedDecision, Tool
from agents.selectors import attached_tools
from agents.services.portable import write_agent_json
from souveraine.errors import NotFound

RULE = "requires_approval"


def names_requiring_approval(agent: Agent) -> set[str]:
    """Return the names of the tools that have the rule (contract §4.5)."""
    return {
        str(rule.get("tool_name"))
        for rule in agent.tool_rules or []
        if rule.get("type") == RULE and rule.get("tool_name")
    }


def with_default_rules(rules: list[dict[str, Any]], tools: list[Tool]) -> list[dict[str, Any]]:
    """Return the rules with one more for each tool that requires approval by default."""
    have = {rule.get("tool_name") for rule in rules if rule.get("type") == RULE}
    wanted = [t.name for t in tools if t.default_requires_approval and t.name not in have]
    return [*rules, *(_rule(name) for name in wanted)]


def _rule(tool_name: str) -> dict[str, Any]:
    return {"tool_name": tool_name, "type": RULE, "prompt_template": None}


def set_approval(actor: Actor, agent: Agent, tool_name: str, *, required: bool) -> Agent:
    """Let calls of an attached tool wait for approval, or no longer. Idempotent. Raises NotFound."""
    if tool_name not in {tool.name for tool in attached_tools(agent)}:
        raise NotFound(f"Tool '{tool_name}' is not attached to agent agent-{agent.pk}.")
    with transaction.atomic():
        locked = Agent.objects.select_for_update().get(pk=agent.pk)
        others = [
            rule
            for rule in locked.tool_rules or []
            if (rule.get("type"), rule.get("tool_name")) != (RULE, tool_name)
        ]
        locked.tool_rules = [*others, _rule(tool_name)] if required else others
        locked.last_updated_by, locked.updated_at = actor.user_id, timezone.now()
        locked.save(update_fields=["tool_rules", "last_updated_by", "updated_at"])
    write_agent_json(locked)
    return locked


def remember(actor: Actor, agent: Agent, tool_name: str, decision: dict[str, Any]) -> None:
    """Keep a decision ({"type": "approve" | "deny", "reason"}) for later calls; the last one counts."""
    if decision["type"] not in ("approve", "deny"):
        return
    RememberedDecision.objects.update_or_create(
        agent=agent,
        tool_name=tool_name,
        defaults={
            "approve": decision["type"] == "approve",
            "reason": decision.get("reason") or "",
            "decided_by": actor.user_id,
            "created_at": timezone.now(),
        },
    )


def revoke(agent: Agent, tool_name: str) -> None:
    """Forget a remembered decision: the next call asks again. Raises NotFound."""
    gone, _ = RememberedDecision.objects.filter(agent=agent, tool_name=tool_name).delete()
    if not gone:
        raise NotFound(f"No decision about '{tool_name}' is remembered for agent agent-{agent.pk}.")
