"""Accept, kill, recover, look: every case at once. Runs with Django set up; see `__main__`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management import call_command

from agents.actor import keyless_actor
from agents.providers import registry
from conversations.composition import server
from conversations.models import Run
from conversations.models.run import ACTIVE
from conversations.services.accept import IncomingMessage, TurnOptions
from conversations.services.approvals import Decision, IncomingApproval
from conversations.services.dispatch import enqueue_all, transport
from conversations.services.runs import overdue, release_owner
from conversations.turn.worker import TurnWorker
from souveraine.lib import crash_points
from souveraine.testing.crash.checks import report_of
from souveraine.testing.crash.processes import ChildKilled, Fork, call, fork
from souveraine.testing.crash.scenarios import BLOCK, Case, Scenario

AT_ONCE = 4  # processes that live at one time
RECOVERY_SECONDS = 90.0
NEXT = Scenario("next", (), answer="It works.", delay_ms=0)


def _prepare(cases: Sequence[Case]) -> dict[str, str]:
    """Migrate and make an agent for each case; returns {case id: conversation id}."""
    call_command("migrate", interactive=False, verbosity=0)
    actor = keyless_actor()
    found = {}
    for case in cases:
        agent = server().inventory.create_agent(
            actor,
            {
                "name": case.id,
                "model": "openai/double",
                "memory_blocks": [{"label": BLOCK, "value": "-"}],
                "tool_rules": [
                    {"type": "requires_approval", "tool_name": name} for name in case.scenario.gated
                ],
            },
        )
        found[case.id] = str(server().sessions.create_conversation(actor, agent).pk)
    return found


@dataclass(frozen=True)
class Send:
    """What a client sends for a case: the scenario's message, or its approval of the calls."""

    scenario: Scenario
    case_id: str
    conversation_id: str
    is_answer: bool = False

    def message(self) -> IncomingMessage | IncomingApproval:
        """Return it with its otid."""
        if self.is_answer:
            approve = (Decision(None, {"type": "approve"}),)
            return IncomingApproval(approve, {"approvals": []}, otid=f"{self.case_id}-answer")
        return IncomingMessage(
            "user", self.scenario.message(self.case_id), otid=f"{self.case_id}-otid"
        )


def _accept(send: Send, point: str = "") -> str:
    """Send as a client does; returns the run's id."""
    actor = keyless_actor()
    conversation = server().sessions.get_conversation(actor, uuid.UUID(send.conversation_id))
    if point:
        crash_points.arm(point)
    options = TurnOptions(**send.scenario.options)
    accepted = server().sessions.accept_turn(actor, conversation, [send.message()], options)
    return str(accepted.run.pk)


def _accept_all(sends: list[Send]) -> dict[str, str]:
    """Accept without telling a worker, as when the broker is away; returns {case id: run id}."""
    with transport.override(lambda run_id: None):
        return {send.case_id: _accept(send) for send in sends}


def _execute(run_id: str, point: str) -> None:
    """Be a worker that runs one turn and dies at the point."""
    crash_points.arm(point)
    _execute_all([run_id])


def _execute_all(run_ids: list[str]) -> None:
    worker = TurnWorker()
    worker.start()
    for run_id in run_ids:
        worker.execute(uuid.UUID(run_id))


def _recover(pids: list[int]) -> None:
    """Do what `release_leases` does after a worker's death."""
    queued = [run for pid in pids for run in release_owner(f"{socket.gethostname()}:{pid}:")]
    enqueue_all([*queued, *overdue(timedelta(0))])


def _unfinished(run_ids: list[str]) -> list[str]:
    open_runs = Run.objects.filter(pk__in=run_ids)
    return [
        f"run-{run.pk} {run.status} closed={run.stream_closed}"
        for run in open_runs
        if run.status in ACTIVE or not run.stream_closed
    ]


class Lab:
    """One database, one Redis, one double, and the processes that die between them."""

    def __init__(self, cases: Sequence[Case], double_url: str, root: Path) -> None:
        self.cases, self._double_url, self._root = cases, double_url, root
        self._killed: list[int] = []
        self._runs: dict[str, str] = {}
        self._reached: set[str] = set()

    def run(self) -> list[dict[str, Any]]:
        """Play all cases; returns what was found, in their order."""
        registry.warm_up()
        places = call(_prepare, self.cases)
        sends = {case: Send(case.scenario, case.id, places[case.id]) for case in self.cases}
        asked = call(_accept_all, [s for c, s in sends.items() if c.scenario.is_killed_in_answer])
        call(_execute_all, list(asked.values()))
        answers = {c: replace(s, is_answer=True) for c, s in sends.items() if c.scenario.gated}
        fatal = {c: answers[c] if c.scenario.is_killed_in_answer else s for c, s in sends.items()}
        self._die([(c, (_accept, s, c.point)) for c, s in fatal.items() if c.is_web])
        # Those of killed webs are sent again, as clients do.
        self._runs = call(_accept_all, list(fatal.values()))
        self._kill_workers()
        with self._survivor():
            self._finish(self._runs, self._killed)
            rest = [s for c, s in answers.items() if not c.scenario.is_killed_in_answer]
            self._finish(call(_accept_all, rest))
            nexts = [Send(NEXT, f"{s.case_id}-next", s.conversation_id) for s in sends.values()]
            after = call(_accept_all, nexts)
            self._finish(after)
        counts = self._counts()
        return list(call(_look, self.cases, places, after, counts, sorted(self._reached)))

    def _finish(self, runs: dict[str, str], killed: Sequence[int] = ()) -> None:
        call(_recover, list(killed))
        self._wait(list(runs.values()))

    def _kill_workers(self) -> None:
        cases = [case for case in self.cases if not case.is_web]
        self._die([(case, (_execute, self._runs[case.id], case.point)) for case in cases])

    def _die(self, doomed: list[tuple[Case, tuple[Any, ...]]]) -> None:
        alive: list[tuple[Case, Fork]] = []
        for case, arguments in doomed:
            alive.append((case, fork(*arguments)))
            if len(alive) >= AT_ONCE:
                self._note_death(*alive.pop(0))
        for case, child in alive:
            self._note_death(case, child)

    def _note_death(self, case: Case, child: Fork) -> None:
        try:
            child.wait()
        except ChildKilled as exc:
            self._killed.append(exc.pid)
            self._reached.add(case.id)

    @contextmanager
    def _survivor(self) -> Iterator[None]:
        """A worker as `manage.py worker` starts it."""
        process = subprocess.Popen([sys.executable, "manage.py", "worker"], cwd=self._root)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)

    def _wait(self, run_ids: list[str]) -> None:
        deadline = time.monotonic() + RECOVERY_SECONDS
        while open_runs := call(_unfinished, run_ids):
            if time.monotonic() > deadline:
                print(f"Not ended after {RECOVERY_SECONDS:g} s: {open_runs}", file=sys.stderr)
                return
            time.sleep(0.3)

    def _counts(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self._double_url}/counts") as answer:
            return dict(json.load(answer))


def _look(
    cases: Sequence[Case],
    places: dict[str, str],
    after: dict[str, str],
    counts: dict[str, int],
    reached: list[str],
) -> list[dict[str, Any]]:
    return [
        report_of(
            case,
            conversation_id=uuid.UUID(places[case.id]),
            next_run_id=uuid.UUID(after[f"{case.id}-next"]),
            model_calls=counts.get(case.id, 0),
            is_killed=case.id in reached,
        ).as_dict()
        for case in cases
    ]
