"""Result of a run: printed output, output files, artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution import CommandResult
from flink_skills.options import SkillOptions
from flink_skills.tools.base import ToolContext
from flink_skills.tools.commands.result_text import limit_text
from flink_skills.tools.runs.gathering import gather
from flink_skills.tools.runs.prepare import PreparedRun
from flink_skills.tools.services import ToolServices
from flink_skills.tools.state import artifacts_effect

__all__ = ["MAX_OUTPUT", "finish"]

#: Bytes of stdout and of stderr in a result.
MAX_OUTPUT = 16 << 10

# What a reader looks for also where there is nothing.
_ALWAYS = ("exit_code", "stdout", "duration_ms")


async def finish(
    prepared: PreparedRun, result: CommandResult, services: ToolServices, context: ToolContext
) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]:
    """The result of a run whose command has ended, and its effects, those of the preparation first.

    What is empty is left out, ``exit_code``, ``stdout`` and ``duration_ms`` (milliseconds) apart. Raises
    :class:`ExecutionError` for a command that was not run.
    """
    if result.error is not None:
        raise ExecutionError(f"The command could not be run safely: {result.error}")
    # The text for the editor is no output.
    await prepared.close()
    exit_code = result.exit_code if result.signal is None else -result.signal
    stdout, stderr = _text(result.stdout), _text(result.stderr)
    warnings = [*prepared.warnings, *_ending(prepared, result)]
    if result.stdout_dropped or len(result.stdout) > MAX_OUTPUT:
        warnings.append("stdout truncated")
    if result.stderr_dropped or len(result.stderr) > MAX_OUTPUT:
        warnings.append("stderr truncated")
    omit: bool = prepared.asked.omit_inline_content or services.config.get(SkillOptions.RUN_OMIT_INLINE)
    gathered = await gather(prepared, exit_code != 0 or result.timed_out, omit, services, context)
    warnings += gathered.warnings
    if exit_code == 0 and not (result.stdout or result.stderr or gathered.entries or warnings):
        warnings.append("the output is empty: the command printed nothing, and no output files were found")
    found = {
        "exit_code": exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "timed_out": result.timed_out,
        "duration_ms": round(result.duration * 1000),
        "staged_inputs": [dict(record) for record in prepared.staged_inputs],
        "output_files": [gathered.entries[name] for name in sorted(gathered.entries)],
        "primary_output": gathered.primary,
        "artifact_files": [{"name": name, "version": version} for name, version in gathered.saved.items()],
        "warnings": list(dict.fromkeys(warnings)),
    }
    effects = (artifacts_effect(context.call_id, gathered.saved.items()),) if gathered.saved else ()
    # Names of files, too, may be what a command made of a secret.
    shown = {name: prepared.shell.hidden.in_data(value) for name, value in found.items() if value or name in _ALWAYS}
    return shown, (*prepared.effects, *effects)


def _ending(prepared: PreparedRun, result: CommandResult) -> list[str]:
    """How the command was ended, if it did not end by itself."""
    said = []
    if result.timed_out:
        said.append(f"the command was ended because it ran longer than {prepared.timeout:g} s")
    if result.limit is not None and not (result.timed_out and result.limit == "wall_time"):
        said.append(limit_text(result.limit, replace(prepared.shell.limits, wall_time=prepared.timeout)))
    elif result.signal is not None and not result.timed_out:
        said.append(f"the command was ended by signal {result.signal}")
    return [*said, *result.notes]


def _text(output: bytes) -> str:
    """Output as text of at most 16 KiB."""
    if len(output) <= MAX_OUTPUT:
        return output.decode("utf-8", "replace")
    return output[:MAX_OUTPUT].decode("utf-8", "ignore")
