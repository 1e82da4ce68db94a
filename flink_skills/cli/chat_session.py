"""The session of ``flink-skills chat``: lines in, turns, and what interrupts them."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from flink_skills.agents.models.setup import ModelSetup
from flink_skills.agents.plan import AgentPlan
from flink_skills.agents.turn import ERROR_TAG, TurnOutcome, TurnStatus
from flink_skills.cli.agents import find_agent, model_setup, skill_sources
from flink_skills.cli.chat_commands import COMMANDS, run_command, tokens_text
from flink_skills.cli.chat_conversation import Conversation
from flink_skills.cli.chat_view import ChatView, LogToView
from flink_skills.cli.interruption import ended_by_signals
from flink_skills.cli.output import complain, counted, diagnostic_line, print_line
from flink_skills.cli.words import configuration
from flink_skills.errors import ConfigError
from flink_skills.options import SkillOptions

__all__ = ["ChatRequest", "run_chat"]

DONE, SOME_ERRORS, INTERRUPTED = 0, 3, 130
_PROMPT = "> "


@dataclass(frozen=True)
class ChatRequest:
    """What the command line asks for."""

    job: Path | None = None
    skills: tuple[str, ...] = ()
    agent: str | None = None
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    instructions: str = ""
    profile: str | None = None
    stream: bool | None = None
    assignments: tuple[str, ...] = ()


def run_chat(request: ChatRequest) -> int:
    """Hold the session; returns the exit code. Raises :class:`SkillsError` for what it cannot begin with."""
    plan = _compile(request)
    stream = sys.stdout.isatty() if request.stream is None else request.stream
    view = ChatView(stream=stream)
    with (
        _logging_to(view),
        ended_by_signals(),
        # On a terminal Ctrl-C is a key of the session, even if the parent process ignores SIGINT.
        _on_interrupt(signal.default_int_handler) if sys.stdin.isatty() else contextlib.nullcontext(),
        tempfile.TemporaryDirectory(prefix="flink-skills-", ignore_cleanup_errors=True) as scratch,
    ):
        conversation = Conversation(plan, scratch, view)
        try:
            _introduce(conversation, plan)
            return _Session(conversation, view).run()
        finally:
            with _on_interrupt(signal.SIG_IGN):  # closing takes seconds at most
                conversation.close()


def _compile(request: ChatRequest) -> AgentPlan:
    from flink_skills.flink.environment import AgentsExecutionEnvironment

    setup = model_setup(request.model, request.base_url)
    if request.api_key_env is not None:
        if setup is None:
            raise ConfigError("--api-key-env needs --model PROVIDER:NAME")
        setup = replace(setup, api_key_env=request.api_key_env)
    if request.job is not None:
        return _compile_of_job(request, request.job, setup)
    config = configuration(list(request.assignments))
    if request.profile is not None:
        config.set(SkillOptions.TOOLS, [name.strip() for name in request.profile.split(",")])
    agent = find_agent(request.agent, request.instructions)
    agents_env = AgentsExecutionEnvironment.get_execution_environment()
    for key in config:
        agents_env.get_config().set(key, config.get(key))
    paths, urls = skill_sources(request.skills)
    agents_env.add_skills_from_paths(paths).add_skills_from_urls(urls)
    return agents_env.compile(agent, local=True, events="json", outputs="record", model=setup)


def _compile_of_job(request: ChatRequest, job: Path, setup: ModelSetup | None) -> AgentPlan:
    from flink_skills.job.local import LocalJob
    from flink_skills.job.reading import read_job

    given = {"--skills": request.skills, "--instructions": request.instructions}
    wrong = [word for word, value in given.items() if value]
    if wrong:
        raise ConfigError(f"{job} is a job file, which says itself what {', '.join(wrong)} would")
    profile = [] if request.profile is None else [f"{SkillOptions.TOOLS.key}={request.profile}"]
    read = read_job(job, (*request.assignments, *profile))
    with read.hiding():
        found = LocalJob(read, model=setup)
        if request.agent is None and len(found.names) > 1:
            raise ConfigError(f"{job} has several agents: name one with --agent {' | '.join(found.names)}")
        return found.plan(request.agent if request.agent is not None else found.names[0])


def _introduce(conversation: Conversation, plan: AgentPlan) -> None:
    manager = conversation.runtime.manager
    skills = len(manager.get_skills())
    models = ", ".join(model.setup.label for model in plan.models) or "none"
    print_line(
        ("flink-skills chat", "bold"),
        f"  agent {plan.agent_id}, model {models}, {counted(skills, 'skill')}, "
        f"isolation {conversation.runtime.isolation}",
        stream=sys.stderr,
    )
    said = manager.diagnostics
    for diagnostic in said:
        if diagnostic.severity == "error":
            print_line(*diagnostic_line(diagnostic), stream=sys.stderr)
    if warnings := sum(diagnostic.severity == "warning" for diagnostic in said):
        print_line(f"{counted(warnings, 'warning')}: see flink-skills validate", stream=sys.stderr)


class _Session:
    def __init__(self, conversation: Conversation, view: ChatView) -> None:
        self._conversation = conversation
        self._view = view
        self._is_interactive = sys.stdin.isatty()
        self._failed = False

    def run(self) -> int:
        read = _line_reader(self._is_interactive)
        if self._is_interactive:
            print_line("/help lists commands; Ctrl-C interrupts an answer, Ctrl-D ends the session", stream=sys.stderr)
        while True:
            try:
                line = read()
                if line is None:
                    break
                if not self._take(line.strip()):
                    break
            except KeyboardInterrupt:
                if not self._is_interactive:
                    return INTERRUPTED
                sys.stderr.write("\n")
        return SOME_ERRORS if self._failed and not self._is_interactive else DONE

    def _take(self, line: str) -> bool:
        """Do what a line asks for; False when the session is to end."""
        if not line:
            return True
        if line.startswith("/") and not line.startswith("//"):
            return run_command(line, self._conversation)
        self._turn(line[1:] if line.startswith("//") else line)
        return True

    def _turn(self, line: str) -> None:
        self._view.begin()
        begun = time.monotonic()
        with self._interruptible():
            outcome = self._conversation.say(line)
        if outcome is None:
            self._view.line(("interrupted: the conversation is as it was before this message", "yellow"))
            if not self._is_interactive:
                raise KeyboardInterrupt
            return
        self._show(outcome, time.monotonic() - begun)

    def _interruptible(self) -> contextlib.AbstractContextManager[None]:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell
            return contextlib.nullcontext()
        return _on_interrupt(lambda number, frame: self._conversation.interrupt())

    def _show(self, outcome: TurnOutcome, seconds: float) -> None:
        records = [(tag, output) for tag, output in outcome.outputs if tag != ERROR_TAG]
        self._view.end([(tag, output if tag else output["output"]) for tag, output in records])
        if outcome.status != TurnStatus.DONE:
            self._failed = True
            complain(f"the turn failed: {outcome.message}")
            return
        self._view.line((_summary(outcome, self._conversation.turns, seconds), "dim"))


def _summary(outcome: TurnOutcome, number: int, seconds: float) -> str:
    record: dict[str, Any] = next((output for tag, output in outcome.outputs if not tag), {})
    usage = record.get("usage", {})
    parts = [f"turn {number}: {seconds:.1f} s"]
    if usage.get("requests"):
        parts.append(counted(usage["requests"], "request"))
    if usage.get("input_tokens") or usage.get("output_tokens"):
        parts.append(tokens_text(usage))
    if record.get("skills"):
        parts.append(f"loaded {', '.join(record['skills'])}")
    return "; ".join(parts)


def _line_reader(interactive: bool) -> Callable[[], str | None]:
    """Reads a line, None at the end; with history and completion where both ends are a terminal."""
    if interactive and sys.stdout.isatty():
        with contextlib.suppress(ImportError):  # a Python without it can still read lines
            import readline

            names = [f"/{name}" for name in COMMANDS]
            readline.set_completer(lambda text, at: [*(n for n in names if n.startswith(text)), None][at])
            readline.set_completer_delims(" ")
            readline.parse_and_bind("tab: complete")

        def ask() -> str | None:
            try:
                return input(_PROMPT)
            except EOFError:
                sys.stdout.write("\n")
                return None

        return ask

    def read() -> str | None:
        if interactive:
            sys.stderr.write(_PROMPT)
            sys.stderr.flush()
        return sys.stdin.readline() or None

    return read


@contextlib.contextmanager
def _on_interrupt(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Handle SIGINT by ``handler`` while the context is open."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _logging_to(view: ChatView) -> Iterator[None]:
    """The package's warnings among the lines of the session, and not over them."""
    logger, handler = logging.getLogger("flink_skills"), LogToView(view)
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
