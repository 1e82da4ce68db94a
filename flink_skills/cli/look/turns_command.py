"""``flink-skills turns``: the turns of an event stream, one turn as a timeline, or a page of all."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.look.turns_data import (
    FAILED,
    OK,
    EventFiles,
    NoEventError,
    Part,
    Turn,
    TurnCollector,
    milliseconds,
)
from flink_skills.cli.shared_options import FAILED as EXIT_FAILED
from flink_skills.cli.shared_options import Format, OutputFormat, text_option
from flink_skills.cli.terminal_output import (
    Column,
    cost_text,
    print_error,
    print_json_line,
    print_line,
    print_note,
    print_table,
    time_text,
    write_file,
)
from flink_skills.errors import ConfigError, counted
from flink_skills.options.option import parse_duration

if TYPE_CHECKING:
    from flink_skills.cli.terminal_output import Styled

_POLL_SECONDS = 0.5
_WIDTH = 32
_SHORT_ID = 8
_MAX_CONTENT = 300
_JOB_FILES = (".yaml", ".yml")
_STYLES = {OK: "green", FAILED: "bold red"}


def turns(
    events: Annotated[
        list[str],
        typer.Argument(
            metavar="EVENTS",
            show_default=False,
            help="File or folder of events as JSON Lines, - for stdin, or a job file whose table of events is read. "
            "Can be repeated.",
        ),
    ],
    *,
    turn: Annotated[
        str | None, text_option("--turn", "ID", "Show the timeline of one turn: its ID, or the beginning of it.")
    ] = None,
    key: Annotated[str | None, text_option("--key", "KEY", "Only turns of this key.")] = None,
    agent: Annotated[str | None, text_option("--agent", "NAME", "Only turns of this agent.")] = None,
    since: Annotated[
        str | None,
        text_option(
            "--since", "TIME", "Only turns that began at or after a time in UTC, or a duration ago such as 2h."
        ),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed turns.")] = False,
    slow: Annotated[
        str | None, text_option("--slow", "DURATION", "Only turns that took at least this long, without their waits.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show each turn as it ends, until Ctrl-C.")] = False,
    html: Annotated[
        str | None, text_option("--html", "FILE", "Write an HTML page with all timelines to FILE. - writes to stdout.")
    ] = None,
    format_: OutputFormat = Format.TEXT,
) -> None:
    """Show the turns of an event stream, or one as a timeline.

    The command prints one line for each turn: its ID, time, agent, key, outcome, seconds without waits, tokens, cost
    and skills. With --turn, it prints one turn as a timeline with its requests, tools, commands, waits and retries, and
    their contents as far as the events have them. JSON output has one object per line with all parts of a turn.

    With --html, it writes one self-contained page that loads nothing from the network. A job file requires the extra
    flink and Java 17. For a topic of Kafka, name the job file, or pipe the topic's records to stdin.

    Examples:

        flink-skills turns ./audit --since 12h --failed

        flink-skills turns ./audit --turn 38cf18b0

        flink-skills turns job.yaml --html turns.html
    """
    if follow and (html is not None or turn is not None):
        raise ConfigError("--follow cannot be combined with --html or --turn: omit one of them")
    selection = _Selection(key=key, agent=agent, since=since, failed=failed, slow=slow, turn=turn)
    reader = _Reader(events)
    if follow:
        reader.follow(lambda ended: _print_followed(ended, format_) if selection(ended) else None)
    else:
        reader.read()
    found = sorted(filter(selection, reader.collector.turns.values()), key=lambda each: (each.began_at, each.id))
    if not follow:
        reader.report()
        if not found:
            _report_nothing(reader.collector, selection)
        elif html is not None:
            _write_page(found, html)
        elif format_ is Format.JSON:
            for each in found:
                print_json_line(each.to_json())
        elif turn is not None:
            _print_timeline(_only(found, turn))
        else:
            _print_list(found)
    raise typer.Exit(EXIT_FAILED if reader.invalid or not (found or follow) else 0)


class _Selection:
    """The turns that the options select."""

    def __init__(
        self,
        *,
        key: str | None,
        agent: str | None,
        since: str | None,
        failed: bool,
        slow: str | None,
        turn: str | None,
    ) -> None:
        self._key, self._agent, self._failed, self._turn = key, agent, failed, turn
        self._since = None if since is None else _since(since)
        self._slow = 0.0
        if slow is not None:
            try:
                self._slow = parse_duration(slow)
            except ValueError as error:
                raise typer.BadParameter(f"--slow {slow}: {error}") from error

    def __call__(self, turn: Turn) -> bool:
        return (
            self._key in (None, turn.key)
            and self._agent in (None, turn.agent)
            and turn.id.startswith(self._turn or "")
            and (self._since is None or turn.began_at >= self._since)
            and (not self._failed or turn.outcome == FAILED)
            and turn.seconds >= self._slow
        )

    def unknown(self, collector: TurnCollector) -> str:
        """Return the name that no turn has, and the names that there are."""
        for option, value, names in (
            ("--agent", self._agent, {turn.agent for turn in collector.turns.values()}),
            ("--key", self._key, {turn.key for turn in collector.turns.values()}),
        ):
            if value is not None and value not in names:
                from flink_skills.errors import near_misses

                near = near_misses(value, sorted(names), limit=3)
                advice = f"did you mean {' or '.join(map(repr, near))}?" if near else "check the name."
                return f"{option} {value}: no turn has it: {advice}"
        return ""


def _since(text: str) -> float:
    """Return a time, or a duration before now, as milliseconds since 1970."""
    try:
        return (time.time() - parse_duration(text)) * 1000
    except ValueError:
        pass
    try:
        return milliseconds(text)
    except NoEventError as error:
        raise typer.BadParameter(
            f"--since {text}: {error}. Write a time such as '2026-11-28 22:00' (UTC), or a duration such as 12h."
        ) from error


class _Reader:
    """Reads events. Invalid lines are counted, and the first one is reported."""

    def __init__(self, places: list[str]) -> None:
        self._tables = [place for place in places if place.endswith(_JOB_FILES)]
        self._files = EventFiles([place for place in places if place not in self._tables], sys.stdin)
        self.collector = TurnCollector()
        self.outside = self.invalid = 0
        self._first = ""

    def read(self) -> None:
        """Read all events."""
        for place, value in self._values(follow=False):
            self._add(place, value)

    def follow(self, show: Callable[[Turn], None]) -> None:
        """Read events until the command is interrupted, and show each turn as it ends."""
        if self._tables and len(self._tables) + len(self._files.paths) > 1:
            raise ConfigError("--follow reads one job file, or files: omit the other EVENTS")
        while True:
            for place, value in self._values(follow=True):
                turn = self._add(place, value)
                if turn is not None and turn.ended is not None:
                    show(turn)
                    del self.collector.turns[turn.id]
            if self._tables or self._files.paths == ["-"]:
                return  # The input ended.
            time.sleep(_POLL_SECONDS)

    def _values(self, *, follow: bool) -> Iterator[tuple[str, Any]]:
        for place, line in self._files.lines(follow=follow):
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError):
                self._reject(place, "the line is not JSON")
        for table in self._tables:
            from flink_skills.job.building import JobBuilder
            from flink_skills.job.job_reading import read_job

            yield from JobBuilder(read_job(Path(table)), local=True).event_rows(follow=follow)

    def _add(self, place: str, value: Any) -> Turn | None:
        try:
            turn = self.collector.add(value)
        except NoEventError as error:
            self._reject(place, str(error))
            return None
        self.outside += turn is None
        return turn

    def _reject(self, place: str, problem: str) -> None:
        self.invalid += 1
        self._first = self._first or f"{place}: {problem}"

    def report(self) -> None:
        """Print the first invalid line, and the number of the others."""
        if self.invalid:
            print_error(
                f"EVENTS has {counted(self.invalid, 'line')} without an event, which are ignored: {self._first}"
            )


def _report_nothing(collector: TurnCollector, selection: _Selection) -> None:
    if not collector.turns:
        print_error(
            "there is no turn in EVENTS. Check that the job writes its events there: set skills.events.enabled."
        )
        return
    number = counted(len(collector.turns), "turn")
    print_error(f"none of {number} is selected. {selection.unknown(collector)}".rstrip())


def _only(found: list[Turn], turn: str) -> Turn:
    if len(found) > 1:
        raise ConfigError(f"--turn {turn}: {len(found)} turns have IDs that begin so. Write more of the ID.")
    return found[0]


def _cells(turn: Turn) -> list[str]:
    return [
        turn.id[:_SHORT_ID],
        time_text(turn.began_at),
        turn.agent,
        turn.key,
        str(turn.number),
        turn.outcome,
        f"{turn.seconds:,.2f}",
        f"{turn.waited:,.2f}" if turn.waited else "",
        f"{turn.tokens:,}",
        cost_text(turn.cost),
        ", ".join(turn.skills),
        turn.error,
    ]


def _print_list(found: list[Turn]) -> None:
    columns = [
        Column("ID"),
        Column("TIME"),
        Column("AGENT"),
        Column("KEY"),
        Column("TURN", right=True, optional=True),
        Column("OUTCOME"),
        Column("SECONDS", right=True),
        Column("WAITED", right=True, optional=True),
        Column("TOKENS", right=True, optional=True),
        Column("COST", right=True, optional=True),
        Column("SKILLS", optional=True),
        Column("ERROR"),
    ]
    print_table(columns, [_cells(turn) for turn in found])
    print_note(_total(found))


def _total(found: list[Turn]) -> str:
    outcomes = [turn.outcome for turn in found]
    others = [f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes) if each != OK]
    costs = [turn.cost for turn in found if turn.cost is not None]
    parts = [counted(len(found), "turn"), *others, f"{sum(turn.tokens for turn in found):,} tokens"]
    return ", ".join([*parts, *([cost_text(sum(costs))] if costs else [])])


def _print_followed(turn: Turn, format_: Format) -> None:
    if format_ is Format.JSON:
        print_json_line(turn.to_json())
    else:
        _, at, agent, key, number, outcome, seconds, _, tokens, cost, skills, error = _cells(turn)
        rest = [f"{seconds} s", f"{tokens} tokens", cost, skills, error]
        name = f"{turn.id[:_SHORT_ID]}  {agent}  {key} #{number}  "
        print_line((at, "cyan"), f"  {name}", (outcome, _STYLES.get(outcome, "")), "  ", "  ".join(filter(None, rest)))
    sys.stdout.flush()


def _print_timeline(turn: Turn) -> None:
    outcome: Styled = (turn.outcome, _STYLES.get(turn.outcome, "yellow"))
    print_line((f"turn {turn.number} of {turn.key}", "bold"), f"  {turn.agent}  ", outcome, f"  {turn.error}")
    waited = f", waited {turn.waited:,.2f} s" if turn.waited else ""
    cost = f", {cost_text(turn.cost)}" if turn.cost is not None else ""
    print_line(f"{turn.id}  {time_text(turn.began_at)}  {turn.seconds:,.2f} s{waited}, {turn.tokens:,} tokens{cost}")
    parts = turn.parts()
    total = max((part.start + (part.duration or 0) for part in parts), default=0) or 1
    for part in parts:
        _print_part(part, total)


def _print_part(part: Part, total: float) -> None:
    begin = min(int(part.start / total * _WIDTH), _WIDTH - 1)
    length = max(1, round((part.duration or 0) / total * _WIDTH))
    bar = (" " * begin + ("█" * length if part.duration is not None else "◆"))[:_WIDTH].ljust(_WIDTH)
    facts = [
        *([_duration_text(part.duration)] if part.duration is not None else []),
        *([f"{part.tokens:,} tokens"] if part.tokens else []),
        *([cost_text(part.cost)] if part.cost is not None else []),
        *part.facts,
    ]
    style = "red" if part.error else "yellow" if part.kind in ("wait", "retry", "fallback") else "cyan"
    name = f"{'  ' * part.depth}{part.kind} {part.name}"
    print_line(f"{part.start / 1000:9.3f} s ", (bar, style), f" {name}  {', '.join(facts)}", (f"  {part.error}", "red"))
    for title, value in part.content.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        more = "…" if len(text) > _MAX_CONTENT else ""
        print_line(f"{' ' * (13 + _WIDTH)}{'  ' * part.depth}{title}: {' '.join(text[:_MAX_CONTENT].split())}{more}")


def _duration_text(milliseconds_: float) -> str:
    return f"{milliseconds_:,.0f} ms" if milliseconds_ < 10_000 else f"{milliseconds_ / 1000:,.1f} s"


def _write_page(found: list[Turn], target: str) -> None:
    from flink_skills.cli.look.catalog_command import render_page

    data = {"turns": [turn.to_json() for turn in found]}
    alternative = "The command flink-skills turns prints the same data as a table, or as JSON with --format json."
    page = render_page("turns", "Turns", data, alternative=alternative)
    if target == "-":
        sys.stdout.write(page)
    else:
        write_file("--html", target, page)
    print_note(f"{'page' if target == '-' else target}: {_total(found)}")
