"""The command line: makes a stack, plays the cases in a process with its settings, prints what was found."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import django
from django.utils.module_loading import import_string

from souveraine.testing.bench.processes import ROOT
from souveraine.testing.crash.scenarios import CASES
from souveraine.testing.stack import stack


def play(only: str, double_url: str) -> None:
    """Be the process from which the doomed ones are forked; prints the reports as JSON."""
    django.setup()
    lab = import_string("souveraine.testing.crash.lab.Lab")
    print(json.dumps(lab([c for c in CASES if only in c.id], double_url, ROOT).run()))


def main() -> int:
    """Play; 1 when a case has problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", default="", help="postgres://user@host:port, else SQLite")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON only")
    parser.add_argument("--play", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.play:
        play(arguments.only, arguments.play)
        return 0
    started = time.monotonic()
    with stack(arguments.postgres) as made:
        command = [sys.executable, "-m", "souveraine.testing.crash", "--play", made.double_url]
        environment = made.environment | {
            "DJANGO_SETTINGS_MODULE": "souveraine.settings",
            "SOUVERAINE_LOG_LEVEL": "ERROR",
        }
        output = subprocess.run(
            [*command, "--only", arguments.only],
            cwd=ROOT,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    reports = json.loads(output.splitlines()[-1])
    bad = sum(bool(report["problems"]) for report in reports)
    if arguments.json:
        print(json.dumps(reports))
        return 1 if bad or not reports else 0
    for report in reports:
        print(f"{'ok ' if not report['problems'] else 'BAD'} {report['case']}")
        for problem in report["problems"]:
            print(f"      {problem}")
    print(f"{len(reports)} cases, {bad} with problems, {time.monotonic() - started:.0f} s")
    return 1 if bad or not reports else 0


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
