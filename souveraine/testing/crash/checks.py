"""What must hold after a crash: nothing lost, nothing doubled, a stream that shows what is stored."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any

from agents.models import Block
from conversations.models import Conversation, Message, Run, RunStatus
from conversations.selectors import run_messages
from conversations.turn.tool_calls import UNKNOWN_OUTCOME
from conversations.wire import frames
from souveraine.events import log
from souveraine.testing.crash.scenarios import BLOCK, Case


@dataclass
class Report:
    """What was found for one case; `problems` is empty when all is well."""

    case: str
    problems: list[str] = field(default_factory=list)
    model_calls: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def _text_of(frame: dict[str, Any]) -> str:
    kind = frame["message_type"]
    if kind in ("tool_call_message", "approval_request_message"):
        calls = frame["tool_calls"]
        parts = calls if isinstance(calls, list) else [calls]
        return "".join((p.get("name") or "") + (p.get("arguments") or "") for p in parts)
    names = {"assistant_message": "content", "reasoning_message": "reasoning"}
    return str(frame.get(names.get(kind, "tool_return"), ""))


def shown(found: list[dict[str, Any]]) -> dict[str, str]:
    """Return what a client shows that adds up deltas and honours retractions: {id and kind: text}."""
    texts: dict[str, str] = {}
    for frame in found:
        if frame["message_type"] == "souveraine_retracted":
            texts = {k: v for k, v in texts.items() if not k.startswith(frame["id"])}
        elif frame.get("id") and frame["message_type"] != "ping":
            key = f"{frame['id']} {frame['message_type']}"
            texts[key] = texts.get(key, "") + _text_of(frame)
    return texts


def stream_problems(run: Run) -> list[str]:
    """Compare the run's stream with its rows."""
    events = log.read(run.pk, 0, 10_000)
    kinds = [event.kind for event in events]
    problems = []
    if kinds.count("end") != 1 or kinds[-1] != "end":
        problems.append(f"the stream's end: {kinds[-4:]}")
    found = [json.loads(e.data) for e in events if e.kind in ("frame", "error")]
    terminal = [f["message_type"] for f in found if not f.get("id")]
    if terminal != ["stop_reason", "usage_statistics"]:
        problems.append(f"terminal frames: {terminal}")
    stored = shown(frames.frames_of_all(run_messages(run), is_turn=True))
    if shown(found) != stored:
        problems.append(f"the stream shows {shown(found)}, stored is {stored}")
    return problems


def _history_problems(case: Case, rows: list[Message]) -> list[str]:
    scenario, answer = case.scenario, [("assistant", case.scenario.answer)]
    expected = [("user", scenario.message(case.id))]
    if scenario.calls:
        returns = [("tool", m.text) for m in rows if m.role == "tool"]
        expected += [("assistant", scenario.intro), *returns[: len(scenario.calls)]]
    found = [(m.role, m.text) for m in rows]
    expected += answer
    return [] if found == expected else [f"messages: {found}, expected {expected}"]


def _tool_problems(case: Case, rows: list[Message], block: str) -> list[str]:
    problems = []
    returns = [m for m in rows if m.role == "tool"]
    for position, (call, row) in enumerate(zip(case.scenario.calls, returns, strict=False)):
        times = block.split().count(call.effect) if call.effect else 0
        is_hidden = bool(call.effect) and case.hidden_call == position
        if (row.text == UNKNOWN_OUTCOME) != is_hidden:
            problems.append(f"return {position} of {call.name}: {row.text}")
        if not is_hidden and row.status != "success":
            problems.append(f"return {position} of {call.name} is {row.status}")
        ran = 0 if case.place == "after_tool_started" and is_hidden else 1
        if call.effect and times != ran:
            problems.append(f"{call.name} took effect {times} times, expected {ran}")
    return problems


def report_of(
    case: Case,
    *,
    conversation_id: uuid.UUID,
    next_run_id: uuid.UUID,
    model_calls: int,
    is_killed: bool,
) -> Report:
    """Look at one case."""
    conversation = Conversation.objects.get(pk=conversation_id)
    *runs, after = Run.objects.filter(conversation=conversation).order_by("created_at")
    rows = list(Message.objects.filter(run__in=runs).exclude(role="approval").order_by("sequence"))
    block = Block.objects.get(agents=conversation.agent, label=BLOCK).value
    problems = _history_problems(case, rows) + _tool_problems(case, rows, block)
    problems += [text for run in (*runs, after) for text in stream_problems(run)]
    if not is_killed:
        problems.append("the point was not reached: nothing was tried")
    ends = [(run.status, run.stop_reason) for run in runs]
    expected = ["requires_approval", "end_turn"] if case.scenario.gated else ["end_turn"]
    if ends != [(RunStatus.COMPLETED, reason) for reason in expected] or after.pk != next_run_id:
        problems.append(f"the runs ended {ends}: {[run.error for run in runs]}")
    if model_calls != case.model_calls:
        problems.append(f"the model was asked {model_calls} times, expected {case.model_calls}")
    sequences = list(
        Message.objects.filter(conversation=conversation)
        .order_by("sequence")
        .values_list("sequence", flat=True)
    )
    if sequences != list(range(1, len(sequences) + 1)):
        problems.append(f"sequences {sequences}")
    if after.status != RunStatus.COMPLETED:
        problems.append(f"the next message: {after.status} {after.error}")
    return Report(case.id, problems, model_calls)
