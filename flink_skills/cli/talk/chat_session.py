"""Interactive loop of ``flink-skills chat``: input lines, turns, interrupts and slash commands."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.rows.wait_record import WAITS_TAG
from flink_skills.agents.turn.turn_record import ERROR_TAG, TurnOutcome, TurnStatus
from flink_skills.cli.signal_guard import exit_on_signals
from flink_skills.cli.talk.chat_conversation import Conversation
from flink_skills.cli.talk.chat_view import ChatView, LogToView
from flink_skills.cli.talk.terminal_questions import ReadLine, ask_person, question_lines, terminal_ask
from flink_skills.cli.terminal_output import cost_text, diagnostic_line, print_error, print_note
from flink_skills.errors import counted, near_misses

DONE, SOME_ERRORS, INTERRUPTED = 0, 3, 130
_PROMPT = "> "
_MAX_DESCRIPTION = 90


def run_chat(plan: AgentPlan, *, stream: bool | None) -> int:
    """Run a session with an agent and return the exit code.

    Args:
        plan: The agent.
        stream: Whether answers are shown while they arrive. None: on a terminal.

    Raises:
        SkillsError: The agent or its skills cannot be opened.
    """
    view = ChatView(stream=sys.stdout.isatty() if stream is None else stream)
    with (
        _log_to(view),
        exit_on_signals(),
        # On a terminal, Ctrl-C interrupts an answer even if the parent process ignores SIGINT.
        _on_interrupt(signal.default_int_handler) if sys.stdin.isatty() else contextlib.nullcontext(),
        tempfile.TemporaryDirectory(prefix="flink-skills-", ignore_cleanup_errors=True) as scratch,
    ):
        read_line = _line_reader(sys.stdin.isatty())
        conversation = Conversation(
            plan, scratch, view, _Questions(view, read_line), terminal_ask(view.line, alone=view.question)
        )
        try:
            _print_introduction(conversation, plan)
            return _Session(conversation, view, read_line).run()
        finally:
            view.end_turn(())
            with _on_interrupt(signal.SIG_IGN):  # Closing takes only seconds.
                conversation.close()


def _print_introduction(conversation: Conversation, plan: AgentPlan) -> None:
    manager = conversation.runtime.manager
    skills = len(manager.get_skills())
    models = ", ".join(model.setup.label for model in plan.models) or "none"
    print_note(
        ("flink-skills chat", "bold"),
        f"  agent {plan.agent_id}, model {models}, {counted(skills, 'skill')}, "
        f"isolation {conversation.runtime.isolation}",
    )
    diagnostics = manager.diagnostics
    for diagnostic in diagnostics:
        if diagnostic.severity == "error":
            print_note(*diagnostic_line(diagnostic))
    if warnings := sum(diagnostic.severity == "warning" for diagnostic in diagnostics):
        text = f"{counted(warnings, 'warning')}. Run flink-skills validate to see the details."
        print_note(text)


class _Questions:
    """Questions of a turn that waits, if the input is not a terminal. The next lines are the answers."""

    def __init__(self, view: ChatView, read_line: ReadLine) -> None:
        self._view, self._read_line = view, read_line

    def __call__(self, question: dict[str, Any]) -> Any:
        for line in question_lines(question):
            self._view.line(*line)
        handled = signal.getsignal(signal.SIGINT)
        try:
            with _on_interrupt(signal.default_int_handler):
                return ask_person(question, self._read_line)
        except KeyboardInterrupt:
            if callable(handled):
                handled(signal.SIGINT, None)  # Interrupt the turn.
            return None


class _Session:
    def __init__(self, conversation: Conversation, view: ChatView, read_line: ReadLine) -> None:
        self._conversation = conversation
        self._read_line = read_line
        self._view = view
        self._is_interactive = sys.stdin.isatty()
        self._has_failed = False

    def run(self) -> int:
        if self._is_interactive:
            print_note("/help lists commands. Ctrl-C interrupts an answer. Ctrl-D ends the session.")
        while True:
            try:
                line = self._read_line(_PROMPT)
                if line is None:
                    break
                if not self._handle(line.strip()):
                    break
            except KeyboardInterrupt:
                if not self._is_interactive:
                    return INTERRUPTED
                sys.stderr.write("\n")
        return SOME_ERRORS if self._has_failed and not self._is_interactive else DONE

    def _handle(self, line: str) -> bool:
        """Run the command or the turn of a line. Return False to end the session."""
        if not line:
            return True
        if line.startswith("/") and not line.startswith("//"):
            return _run_slash_command(line, self._conversation)
        self._run_turn(line[1:] if line.startswith("//") else line)
        return True

    def _run_turn(self, line: str) -> None:
        self._view.start_turn()
        started = time.monotonic()
        with self._interruptible():
            outcome = self._conversation.run_turn(line)
        if outcome is None:
            self._view.end_turn(())
            self._view.line(("Interrupted. The conversation does not contain this message.", "yellow"))
            if not self._is_interactive:
                raise KeyboardInterrupt
            return
        self._show(outcome, time.monotonic() - started)

    def _interruptible(self) -> contextlib.AbstractContextManager[None]:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # The shell started the process in the background.
            return contextlib.nullcontext()
        return _on_interrupt(lambda number, frame: self._conversation.interrupt())

    def _show(self, outcome: TurnOutcome, seconds: float) -> None:
        records = [(tag, output) for tag, output in outcome.outputs if tag not in (ERROR_TAG, WAITS_TAG)]
        self._view.end_turn([(tag, output if tag else output["output"]) for tag, output in records])
        if outcome.status != TurnStatus.DONE:
            self._has_failed = True
            print_error(f"the turn failed: {outcome.message}")
            return
        self._conversation.cost += self._view.cost or 0.0
        self._view.line((_summary(outcome, self._conversation.turns, seconds, self._view.cost), "dim"))


def _summary(outcome: TurnOutcome, number: int, seconds: float, cost: float | None) -> str:
    record: dict[str, Any] = next((output for tag, output in outcome.outputs if not tag), {})
    usage = record.get("usage", {})
    parts = [f"turn {number}: {seconds:.1f} s"]
    if usage.get("requests"):
        parts.append(counted(usage["requests"], "request"))
    if usage.get("input_tokens") or usage.get("output_tokens"):
        parts.append(_tokens_text(usage))
    if cost is not None:
        parts.append(cost_text(cost))
    if record.get("skills"):
        parts.append(f"loaded {', '.join(record['skills'])}")
    return "; ".join(parts)


def _line_reader(interactive: bool) -> ReadLine:
    """Return a function that reads a line with a prompt, and returns None at the end of the input.

    On a terminal the function has a history and completes commands.
    """
    if interactive and sys.stdout.isatty():
        with contextlib.suppress(ImportError):  # Some Python builds lack readline.
            import readline

            names = [f"/{name}" for name in _COMMANDS]
            readline.set_completer(lambda text, state: [*(n for n in names if n.startswith(text)), None][state])
            readline.set_completer_delims(" ")
            readline.parse_and_bind("tab: complete")

        def read_with_prompt(prompt: str) -> str | None:
            try:
                return input(prompt)
            except EOFError:
                sys.stdout.write("\n")
                return None

        return read_with_prompt

    def read(prompt: str) -> str | None:
        if interactive:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        return sys.stdin.readline() or None

    return read


@contextlib.contextmanager
def _on_interrupt(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Handle SIGINT with ``handler`` within the context."""
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def _log_to(view: ChatView) -> Iterator[None]:
    """Print the warnings of the package as separate lines of the session."""
    logger, handler = logging.getLogger("flink_skills"), LogToView(view)
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _Command(NamedTuple):
    """Summary and function of a slash command. The function returns False to end the session."""

    summary: str
    run: Callable[[Conversation], bool]


def _run_slash_command(line: str, conversation: Conversation) -> bool:
    """Run the command that ``line`` names. Return False to end the session."""
    name = line[1:].split(maxsplit=1)[0].lower() if len(line) > 1 else ""
    command = _COMMANDS.get(name)
    if command is None:
        suggestions = near_misses(name, _COMMANDS)
        hint = f"Did you mean /{suggestions[0]}? " if suggestions else ""
        print_error(f"unknown command /{name}. {hint}Use /help to list commands, or // to send a message with a slash.")
        return True
    return command.run(conversation)


def _help(conversation: Conversation) -> bool:
    for name, command in _COMMANDS.items():
        print_note((f"/{name:<8}", "bold"), f" {command.summary}")
    print_note("Ctrl-C interrupts an answer. Ctrl-D ends the session.")
    return True


def _skills(conversation: Conversation) -> bool:
    models = conversation.models()
    for model in models:
        if len(models) > 1:
            print_note((f"model {model.name}", "bold"))
        loaded = conversation.skill_state(model)
        for name in model.view.names:
            state = "loaded  " if name in loaded else "        "
            skill = model.view.get(name)
            description = " ".join(skill.description.split()) if skill is not None else ""
            if len(description) > _MAX_DESCRIPTION:
                description = description[: _MAX_DESCRIPTION - 1] + "…"
            print_note((state, "green"), (name, "bold"), f"  {description}")
        if not model.view.names:
            print_note("No skills. Set a source with --skills.")
    return True


def _tools(conversation: Conversation) -> bool:
    models = conversation.models()
    for model in models:
        if len(models) > 1:
            print_note((f"model {model.name}", "bold"))
        for spec in conversation.tools(model):
            first = " ".join(spec.description.split()).split(". ")[0].rstrip(".")
            print_note((spec.name, "bold"), f"  {first}")
        if not model.tools.names:
            print_note("No tools.")
        if model.services.toolsets is not None:
            print_note("The agent's tool sets add more tools, depending on the key of the event.")
        if model.services.pool is not None:
            print_note("A loaded skill adds the tools of the agent's pool that it names.")
    return True


def _tokens_text(usage: Mapping[str, int]) -> str:
    """Return token counts as text, with cached tokens and reasoning tokens if there are any.

    >>> _tokens_text({"input_tokens": 1200, "output_tokens": 80, "cache_read_tokens": 1000})
    '1,200 tokens in (1,000 from cache), 80 out'
    """

    def parts(**names: str) -> str:
        counts = [f"{usage[name]:,} {label}" for name, label in names.items() if usage.get(name)]
        return f" ({', '.join(counts)})" if counts else ""

    cached = parts(cache_read_tokens="from cache", cache_write_tokens="to cache")
    reasoned = parts(reasoning_tokens="reasoning")
    return f"{usage['input_tokens']:,} tokens in{cached}, {usage['output_tokens']:,} out{reasoned}"


def _usage(conversation: Conversation) -> bool:
    usage = conversation.usage
    print_note(
        f"{counted(conversation.turns, 'turn')}, {counted(usage.requests, 'request')}, {_tokens_text(vars(usage))}"
        + (f", {cost_text(conversation.cost)}" if conversation.cost else "")
    )
    return True


def _reset(conversation: Conversation) -> bool:
    conversation.reset()
    print_note(f"Started a new conversation with key {conversation.key}, an empty history and an empty workspace.")
    return True


def _exit(conversation: Conversation) -> bool:
    return False


_COMMANDS: dict[str, _Command] = {
    "help": _Command("List the commands.", _help),
    "skills": _Command("List the skills that the model can load, and show which are loaded.", _skills),
    "tools": _Command("List the tools that the model can call now.", _tools),
    "usage": _Command("Show turns, requests, tokens and cost of this conversation.", _usage),
    "reset": _Command("Discard the conversation and start a new one.", _reset),
    "exit": _Command("End the session.", _exit),
}
