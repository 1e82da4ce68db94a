"""How a command ended, in words for a model and as data for code."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from flink_skills.execution import CommandResult, Limits
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.tools.base import ToolResult

_EXIT_CODE = "exit code: "
_EMPTY = "output: empty"

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def describe(
    result: CommandResult, limits: Limits, level: IsolationLevel, longest: float, notes: Iterable[str] = ()
) -> ToolResult:
    """The result of a command under ``limits``; ``longest`` is the wall time (seconds) that the job allows at most.

    A command that failed is no error of the tool; one that was not run is. The value keeps apart what a text cannot:
    ``return_code`` (minus the signal for a killed command, None when there was none), ``signal`` by name,
    ``timed_out``, the name of the ``limit``, ``truncated``, the ``error`` of the set-up, the isolation ``level``, and
    ``notes`` if the sandbox denied something.

    >>> describe(CommandResult(exit_code=0, stdout=b"hi"), Limits(), IsolationLevel.LANDLOCK, 300.0).content
    'exit code: 0\\nstdout:\\nhi\\nstderr:'
    """
    stdout = result.stdout.decode("utf-8", "replace")
    stderr = result.stderr.decode("utf-8", "replace")
    killed_by = None if result.signal is None else _signal_name(result.signal)
    value = {
        "return_code": result.exit_code if result.signal is None else -result.signal,
        "signal": killed_by,
        "stdout": stdout,
        "stderr": stderr,
        "timed_out": result.timed_out,
        "limit": result.limit or ("wall_time" if result.timed_out else None),
        "truncated": result.truncated,
        "error": result.error,
        "level": level.name,
        **({"notes": list(result.notes)} if result.notes else {}),
    }
    if result.error is not None:
        return ToolResult(f"The command could not be run safely: {result.error}", is_error=True, value=value)
    remarks = [*notes, *result.notes]
    if result.timed_out:
        remarks.append(_timed_out(limits.wall_time, longest))
    if result.limit is not None and not (result.timed_out and result.limit == "wall_time"):
        remarks.append(limit_text(result.limit, limits))
    elif killed_by is not None and not result.timed_out:
        remarks.append(f"the command was ended by {killed_by}")
    for name, dropped in (("stdout", result.stdout_dropped), ("stderr", result.stderr_dropped)):
        if dropped:
            remarks.append(f"{dropped} bytes of {name} were left out: write much output to a file in $WORK_DIR")
    head = [f"{_EXIT_CODE}{value['return_code']}"]
    if not (stdout or stderr or killed_by or value["limit"] or result.stdout_dropped or result.stderr_dropped):
        head.append(_EMPTY)
    lines = [*head, *(f"note: {note}" for note in remarks)]
    sections = (
        "\n".join(lines) + "\nstdout:\n",
        _closed(stdout),
        "stderr:\n" if stderr else "stderr:",
        _closed(stderr),
    )
    return ToolResult("".join(sections), value=value, sections=sections)


def says_failure(text: str) -> bool:
    """Return whether the text of a result has another exit code than 0.

    >>> says_failure("exit code: 1\\nstdout:\\n")
    True
    """
    first = text.partition("\n")[0]
    return first.startswith(_EXIT_CODE) and first != f"{_EXIT_CODE}0"


def says_nothing(text: str) -> bool:
    """Return whether ``text`` states that the command has no output.

    >>> says_nothing("exit code: 0\\noutput: empty\\nstdout:\\nstderr:")
    True
    """
    first, _, rest = text.partition("\n")
    return first.startswith(_EXIT_CODE) and rest.startswith(f"{_EMPTY}\n")


def _timed_out(seconds: float, longest: float) -> str:
    fix = f"; timeout may be {longest:g}" if seconds < longest else ", the most that this job allows: do it in parts"
    return f"the command was ended because it ran longer than {seconds:g} s{fix}"


def limit_text(name: str, limits: Limits) -> str:
    """What a limit allows, and what to do about it, as an end of a sentence for a model."""
    known = {
        "wall_time": f"{limits.wall_time:g} s of time: do it in parts",
        "cpu_time": f"{limits.cpu_time:g} s of processor time: do it in parts",
        "memory": f"{_size(limits.memory)} of memory for all its processes: work on smaller parts, or read as a stream",
        "processes": f"{limits.processes} processes and threads: start fewer at a time",
        "file_size": f"{_size(limits.file_size)} for one file: write smaller files",
        "workspace_bytes": f"{_size(limits.workspace_bytes)} for all files of the workspace: remove some of $WORK_DIR",
        "workspace_files": f"{limits.workspace_files} files in the workspace: remove some of $WORK_DIR",
        "open_files": f"{limits.open_files} open files: close files, or open fewer at a time",
        "output": f"{_size(limits.output)} of output: write much output to a file in $WORK_DIR",
    }
    return f"the command reached the limit {name}" + (f", {known[name]}" if name in known else "")


def _size(size: int) -> str:
    for unit, factor in _UNITS:
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"


def _closed(text: str) -> str:
    """``text`` ending with a line break, so that what follows begins a line."""
    return text if not text or text.endswith("\n") else text + "\n"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
