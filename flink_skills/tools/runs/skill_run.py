"""``skill_run``: one command of a skill from its start to its end, with inputs and outputs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from flink_skills.errors import ExecutionError
from flink_skills.execution import CommandResult, Workspace
from flink_skills.execution.workspace import Collected, CollectedFile
from flink_skills.manager.view import SkillView
from flink_skills.options import SkillOptions
from flink_skills.telemetry.activity import observe
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.commands.policy import CommandPolicy
from flink_skills.tools.commands.result_text import limit_text
from flink_skills.tools.runs.run_arguments import RunArguments
from flink_skills.tools.runs.run_outputs import (
    Outcome,
    OutputRequest,
    entry_of,
    primary_of,
    save_outputs,
    text_of,
    unmatched,
)
from flink_skills.tools.runs.run_preparation import PreparedRun, prepare
from flink_skills.tools.services import ToolServices
from flink_skills.tools.skills.skill_face import SkillTool
from flink_skills.tools.state import artifacts_effect

__all__ = ["MAX_OUTPUT", "Gathered", "SkillRun", "finish", "for_model", "gather", "without_varying"]

# What stands in the middle of output for what was left out takes room as well.
_ROOM_FOR_GAP = 64
_SHOWN_PROGRAMS = 20


# A primary output up to this long may be in a result twice: models look in either place.
_TWICE = 4_096


class SkillRun(SkillTool[RunArguments]):
    """Runs a command in a skill's folder and hands back what it said and the files that it left."""

    tool_name: ClassVar[str] = "skill_run"
    description: ClassVar[str] = (
        "Run a command that a skill asks for; no general shell. It starts in the skill's folder (read-only). Inputs: "
        "$WORK_DIR/inputs. Results: $OUTPUT_DIR. Scratch: $WORK_DIR, not /tmp."
    )
    model = RunArguments
    uses_workspace = True
    runs_in = "sandbox"

    def __init__(self, services: ToolServices) -> None:
        super().__init__(services)
        policy = services.shell.policy if services.shell is not None else None
        if policy:
            self._spec = replace(self._spec, description=f"{self.description} {_what_may_run(policy)}")

    async def _run(self, asked: RunArguments, view: SkillView, context: ToolContext) -> ToolResult:
        prepared = await prepare(asked, self._services, context)
        try:
            with prepared.running():
                result = await _execute(prepared, context)
            value, effects = await finish(prepared, result, self._services, context)
        finally:
            await prepared.close()
        return ToolResult(
            json.dumps(for_model(value), ensure_ascii=False),
            value=value,
            effects=effects,
            # The run's folder has its own name.
            compared=json.dumps(without_varying(value)).replace(prepared.run_dir.name, "RUN_DIR"),
        )


def without_varying(value: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the values that differ in each run."""
    return {name: found for name, found in value.items() if name not in ("duration_ms", "session_id")}


async def _execute(prepared: PreparedRun, context: ToolContext) -> CommandResult:
    shell = prepared.shell
    return await shell.run(
        prepared.command,
        workspace=prepared.workspace,
        cwd=prepared.cwd,
        run_dir=prepared.run_dir,
        skill_name=prepared.skill_name,
        call_id=context.call_id,
        on_start=prepared.span.start,
        env=prepared.env,
        stdin=prepared.stdin,
        timeout=prepared.timeout,
        limits=replace(shell.limits, output=min(shell.limits.output, MAX_OUTPUT - _ROOM_FOR_GAP)),
    )


def _what_may_run(policy: CommandPolicy) -> str:
    """The rules of the job, in the description: a model that knows them need not try."""
    text = "The command is one program with arguments, without a shell."
    if policy.permits_none:
        return f"{text} This job permits no programs."
    shown = ", ".join(policy.permitted[:_SHOWN_PROGRAMS])
    more = len(policy.permitted) - _SHOWN_PROGRAMS
    return text + (f" Permitted: {shown}{f' and {more} more' if more > 0 else ''}." if shown else "")


def for_model(value: dict[str, Any]) -> dict[str, Any]:
    """A result as the model reads it: a long text in ``output_files`` is not there again as primary output."""
    primary = value.get("primary_output")
    shown = {entry["name"] for entry in value.get("output_files", ()) if "content" in entry}
    if primary is not None and primary["name"] in shown and len(primary.get("content", "")) > _TWICE:
        return {**value, "primary_output": {name: text for name, text in primary.items() if name != "content"}}
    return value


_SHOWN_NAMES = 10
# One file of the largest size; a result is part of the conversation from then on.
_MAX_INLINE = 4 << 20


@dataclass
class Gathered:
    """What was found: ``entries`` as the result shows them, ``files`` with those that were not asked for by name.

    ``saved`` are the versions of artifacts by their names, ``primary`` is the primary output.
    """

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, CollectedFile] = field(default_factory=dict)
    saved: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    contents: dict[str, str | None] = field(default_factory=dict)
    primary: dict[str, Any] | None = None

    def show(self) -> None:
        """Make the entries, with the contents that the result has room for: the smallest first, so that most fit."""
        sizes = {name: _size_in_json(content) for name, content in self.contents.items() if content}
        room, left_out = _MAX_INLINE, set()
        for name in sorted(sizes, key=lambda name: sizes[name]):
            if sizes[name] > room:
                left_out.add(name)
            else:
                room -= sizes[name]
        for name, content in self.contents.items():
            self.entries[name] = entry_of(self.files[name], None if name in left_out else content)
        if left_out:
            first = min(left_out)
            said = f"the contents of {len(left_out)} files were" if len(left_out) > 1 else f"the content of {first} was"
            more = f"; first: {first}" if len(left_out) > 1 else ""
            self.warnings.append(f"{said} left out: the result holds {_MAX_INLINE} bytes{more}")


async def gather(
    prepared: PreparedRun, failed: bool, omit: bool, services: ToolServices, context: ToolContext
) -> Gathered:
    """The output files of a run that has ended; ``failed`` says that its command did, ``omit`` to leave contents out.

    What cannot be fetched or saved is a warning: the command has run, and what it said counts.
    """
    found = Gathered()
    skill = prepared.skill_name
    # Few at once: each may hold as many bytes as its limits allow, and a worker has a thousand turns.
    async with prepared.shell.gathering:
        with observe("collect", skill, skill=skill, call_id=context.call_id) as activity:
            for request in prepared.requests:
                try:
                    await _fetch(request, prepared, services, context, found, failed=failed)
                except ExecutionError as error:
                    found.warnings.append(f"outputs {', '.join(request.patterns[:_SHOWN_NAMES])}: {error}")
            activity.attributes.update(files=len(found.files), bytes=sum(file.size for file in found.files.values()))
        await asyncio.to_thread(found.show)
        found.primary = primary_of(list(found.files.values()), omit, prepared.shell.hidden)
        found.files.clear()
    return found


async def _fetch(
    request: OutputRequest,
    prepared: PreparedRun,
    services: ToolServices,
    context: ToolContext,
    found: Gathered,
    *,
    failed: bool,
) -> None:
    collected = await asyncio.to_thread(_collect, prepared.workspace, request)
    kept = [file for file in collected.files if file.size or not failed]
    if request.exported:
        _export(kept, request.exported, prepared, found)
        return
    empty = [file.name for file in collected.files if file not in kept]
    if empty:
        # An empty file is where the output of a command that failed would have gone.
        found.warnings.append(f"empty files left out, as the command failed: {_shown(empty)}")
    found.warnings += _limits_hit(request, collected)
    for file in kept:
        if file.name not in found.files:
            found.files[file.name] = file
            found.contents[file.name] = (
                text_of(file.data, file.truncated, prepared.shell.hidden) if request.inline else None
            )
    outcome = await save_outputs(kept, request.prefix, services, context) if request.save else Outcome()
    found.saved.update(outcome.saved)
    found.warnings += outcome.warnings
    record = {
        "globs": list(request.patterns),
        "saved_as": [one.name for one in outcome.saved],
        "versions": [one.version for one in outcome.saved],
        "limits_hit": list(collected.limits_hit),
    }
    await asyncio.to_thread(prepared.workspace.note_outputs, record)


def _export(files: Sequence[CollectedFile], most: int, prepared: PreparedRun, found: Gathered) -> None:
    """Add the new files to ``found``, unless another command ran meanwhile: its files cannot be distinguished."""
    fresh = [file for file in files if prepared.span.covers(file.changed_ns)]
    if fresh and not prepared.span.alone:
        found.warnings.append(
            f"new files were not looked at, as another command ran in this workspace meanwhile: name those of this one "
            f"in output_files. New: {_shown([file.name for file in fresh])}"
        )
        return
    found.files.update((file.name, file) for file in fresh[:most])


def _size_in_json(content: str) -> int:
    """Characters of a text in a result: signs that no line holds take six times their size there."""
    return len(json.dumps(content, ensure_ascii=False)) - len('""')


def _collect(workspace: Workspace, request: OutputRequest) -> Collected:
    return workspace.collect(
        request.patterns,
        max_files=request.max_files,
        max_file_bytes=request.max_file_bytes,
        max_total_bytes=request.max_total_bytes,
    )


def _limits_hit(request: OutputRequest, collected: Collected) -> list[str]:
    values = {
        "max_files": request.max_files,
        "max_file_bytes": request.max_file_bytes,
        "max_total_bytes": request.max_total_bytes,
    }
    said = [f"outputs reached {name} ({values[name]})" for name in collected.limits_hit if name in values]
    said += [f"outputs reached {name}" for name in collected.limits_hit if name not in values]
    # What a limit kept out, or could not be read, may have been what a pattern meant.
    kept_out = collected.problems or set(collected.limits_hit) - {"max_file_bytes"}
    missed = [] if kept_out else unmatched(request.patterns, collected.files)
    if missed:
        said.append(f"the workspace has no file that matches {_shown(missed)}")
    return [*said, *collected.problems]


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


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
