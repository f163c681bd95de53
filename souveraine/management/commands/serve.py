"""`manage.py serve`: Redis, web and worker under one supervisor, in one terminal.

Decides (data directory, lock, port, database, keys), then becomes `souveraine.supervisor`, which
starts the parts and keeps them alive. What is needed from the apps is looked up by name, so that
the wiring stays independent of them.
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils.module_loading import import_string

from souveraine.checks import local_findings
from souveraine.errors import SouveraineError
from souveraine.lib.program import command_line
from souveraine.management import preparation
from souveraine.supervisor import listen
from souveraine.supervisor.commands import ServeOptions
from souveraine.supervisor.lock import AlreadyServing, acquire
from souveraine.supervisor.processes import Console
from souveraine.supervisor.redis import RedisUnavailable, choose
from souveraine.supervisor.server import Plan

DEFAULT_MODEL = "agents.providers.registry.default_model"
PROVIDER_PROBLEMS = "agents.providers.registry.problems"
ENSURE_DEMO_MODEL = "agents.providers.demo.ensure_demo_model"


class Command(BaseCommand):
    """Start the whole server and keep it running until Ctrl-C or SIGTERM."""

    help = "Start the server: Redis, web and worker. Ctrl-C lets running turns finish, then stops."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the two settings that people change most."""
        parser.add_argument("--host", default="", help="Address to bind (else SOUVERAINE_HOST)")
        parser.add_argument("--port", type=int, default=0, help="TCP port (else SOUVERAINE_PORT)")
        # For the supervisor, once the server is healthy.
        parser.add_argument("--greet", action="store_true", help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped. Raises CommandError with one clear text when it cannot start."""
        config = settings.CONFIG
        serve_options = preparation.serve_options(config, options["host"], options["port"])
        if options["greet"]:
            _Greeter(serve_options, config, lambda text: print(text, flush=True)).run()
            return
        console = Console(sys.stdout)
        for finding in local_findings():
            console.say(f"Warning: {finding.msg} {finding.hint}")
        try:
            plan = _prepare(serve_options, config, console)
        except (AlreadyServing, listen.CannotListen, RedisUnavailable) as exc:
            raise CommandError(str(exc)) from None
        except KeyboardInterrupt:
            raise CommandError("Stopped before anything was started.", returncode=130) from None
        _become_supervisor(plan)


def _prepare(options: ServeOptions, config: Any, console: Console) -> Plan:
    """Take lock and port and bring the database up to date; the lock stays with the process."""
    try:
        options.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (options.data_dir / "logs").mkdir(mode=0o700, exist_ok=True)
        lock = acquire(options.data_dir, listen.public_url(options.host, options.port))
    except OSError as exc:
        raise CommandError(
            f"Cannot use the data directory {options.data_dir}: {exc.strerror}. "
            "Set SOUVERAINE_DATA_DIR to a folder you own."
        ) from None
    try:
        listener = listen.bind(options.host, options.port)
        choice = choose(config["REDIS_URL"], config["SOUVERAINE_REDIS_SERVER"])
        preparation.prepare_database(console.say)
        preparation.refuse_open_door(options.host)
        connections.close_all()
    except BaseException:
        lock.close()
        raise
    if choice.url:
        os.environ["REDIS_URL"] = choice.url  # from config.toml; never on a command line
    left_over = lock.previous.children.get("worker", 0)
    return Plan(options, choice.binary, lock.fd, listener.detach(), left_over)


def _become_supervisor(plan: Plan) -> NoReturn:
    """Replace this process by the light one, which goes on with lock and socket."""
    for fd in (plan.lock_fd, plan.listener_fd):
        os.set_inheritable(fd, True)
    os.chdir(plan.options.base_dir)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(  # noqa: S606
        sys.executable, [sys.executable, "-m", "souveraine.supervisor", plan.to_json()]
    )


@dataclass
class _Greeter:
    """Finds a model, or makes the demonstration model ready, and tells what to do next."""

    options: ServeOptions
    config: Any
    say: Callable[[str], None]

    def run(self) -> None:
        """Print the model found and the next steps."""
        url = listen.public_url(self.options.host, self.options.port)
        handle = self._model()
        self.say(_next_steps(url, handle))

    def _model(self) -> str:
        default_model: Callable[[], Any] = import_string(DEFAULT_MODEL)
        try:
            model = default_model()
        except SouveraineError as exc:
            self.say(f"Warning: SOUVERAINE_DEFAULT_MODEL cannot be used. {exc.message}")
            return ""
        problems: Callable[[], dict[str, str]] = import_string(PROVIDER_PROBLEMS)
        for reason in problems().values():
            self.say(f"Warning: {reason}")
        if model is not None:
            known_as = (
                "" if model.handle.endswith(model.display_name) else f", {model.display_name}"
            )
            self.say(f"Model: {model.handle}{known_as}")
            return str(model.handle)
        return self._demo_model()

    def _demo_model(self) -> str:
        if not self.config["SOUVERAINE_DEMO_MODEL"]:
            self.say(
                "No model was found, and the demonstration model is switched off. Start Ollama and "
                "pull a model, or point OPENAI_BASE_URL and OPENAI_API_KEY at a server that answers "
                "(docs/configuration.md)."
            )
            return ""
        self.say(
            "No model was found (no Ollama, nothing at OPENAI_BASE_URL), so a small demonstration "
            "model is fetched (about 93 MB, once). It shows that all works; its answers are poor."
        )
        ensure_demo_model: Callable[[Path, Callable[[str], None]], str] = import_string(
            ENSURE_DEMO_MODEL
        )
        try:
            handle = ensure_demo_model(self.options.data_dir, self.say)
        except SouveraineError as exc:
            self.say(
                f"The demonstration model could not be made ready: {exc.message} The server runs; "
                "add a model (Ollama or OPENAI_BASE_URL), or start again later."
            )
            return ""
        self.say(f"Model: {handle}")
        return handle


def _next_steps(url: str, handle: str) -> str:
    model = f', "model": "{handle}"' if handle else ""
    return (
        "Next:\n"
        f"  any Letta client, with the base URL {url}\n"
        f"  curl -s {url}/v1/agents/ -H 'Content-Type: application/json' "
        f'-d \'{{"name": "first"{model}}}\'\n'
        f"  curl -N {url}/v1/conversations/default/messages -H 'Content-Type: application/json' "
        '-d \'{"agent_id": "<id from the answer>", "input": "Hello!", "stream_tokens": true}\'\n'
        f"  {command_line('createadmin')} makes a login for {url}/admin/\n"
        "Ctrl-C stops the server."
    )
