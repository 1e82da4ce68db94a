"""``skill_run``: one command of a skill from its start to its end, with inputs and outputs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from flink_skills.errors import ExecutionError, SkillsError
from flink_skills.execution import CommandResult
from flink_skills.execution.workspace import Collected, CollectedFile
from flink_skills.manager.view import SkillView
from flink_skills.options import SkillOptions
from flink_skills.telemetry.activity import observe
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.result_text import limit_text
from flink_skills.tools.runs.prepared_run import (
    NO_ARTIFACTS,
    OutputRequest,
    PreparedRun,
    entry_of,
    primary_of,
    text_of,
    unmatched,
)
from flink_skills.tools.runs.run_arguments import RunArguments
from flink_skills.tools.skills.run_preparation import prepare
from flink_skills.tools.skills.skill_face import SkillTool, ToolServices
from flink_skills.tools.state import artifacts_effect

# Bytes of the note that replaces the middle of long output.
_GAP_BYTES = 64
# A primary output of this length can be in a result twice, because models read either place.
_MAX_TWICE = 4_096


class SkillRun(SkillTool[RunArguments]):
    """Runs a command in a skill's folder, and returns its output and its output files."""

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
            about = f"{self.description} The command is one program with arguments, without a shell."
            self._spec = replace(self._spec, description=about + policy.permitted_text)

    async def _run(self, asked: RunArguments, view: SkillView, context: ToolContext) -> ToolResult:
        run = await prepare(asked, self._services, context)
        shell = run.shell
        try:
            result = await shell.run(
                run.command,
                workspace=run.workspace,
                cwd=run.cwd,
                run_dir=run.run_dir,
                skill_name=run.skill_name,
                call_id=context.call_id,
                on_start=run.span.start,
                env=run.env,
                stdin=run.stdin,
                timeout=run.timeout,
                limits=replace(shell.limits, output=min(shell.limits.output, MAX_OUTPUT - _GAP_BYTES)),
            )
            value, effects = await finish(run, result, self._services, context)
        finally:
            await run.close()
        return ToolResult(
            json.dumps(for_model(value), ensure_ascii=False),
            value=value,
            effects=effects,
            # The run's folder has its own name.
            compared=json.dumps(without_varying(value)).replace(run.run_dir.name, "RUN_DIR"),
        )


def without_varying(value: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the values that differ in each run."""
    return {name: found for name, found in value.items() if name not in ("duration_ms", "session_id")}


def for_model(value: dict[str, Any]) -> dict[str, Any]:
    """Return a result as the model reads it: a long text of ``output_files`` is not repeated as primary output."""
    primary = value.get("primary_output")
    shown = {entry["name"] for entry in value.get("output_files", ()) if "content" in entry}
    if primary is not None and primary["name"] in shown and len(primary.get("content", "")) > _MAX_TWICE:
        return {**value, "primary_output": {name: text for name, text in primary.items() if name != "content"}}
    return value


_SHOWN_NAMES = 10
# The size of the largest file. A result stays in the conversation.
_MAX_INLINE = 4 << 20
#: Bytes of stdout and of stderr in a result.
MAX_OUTPUT = 16 << 10
# Keys of each result, even if their values are empty.
_ALWAYS = ("exit_code", "stdout", "duration_ms")


class _OutputFiles:
    """The output files of a run that has ended, and the artifacts that they become.

    A file that cannot be read or saved is a warning, because the command has run.
    """

    def __init__(self, run: PreparedRun, services: ToolServices, context: ToolContext, *, failed: bool) -> None:
        self._run = run
        self._services = services
        self._context = context
        self._failed = failed
        self._files: dict[str, CollectedFile] = {}
        self._contents: dict[str, str | None] = {}
        #: The entries of the result by name.
        self.entries: dict[str, dict[str, Any]] = {}
        #: The versions of the saved artifacts by name.
        self.saved: dict[str, str] = {}
        self.warnings: list[str] = []
        self.primary: dict[str, Any] | None = None

    async def collect(self, *, omit: bool) -> None:
        """Read the files. ``omit`` leaves out the content of the primary output."""
        run = self._run
        # Each collection can hold as many bytes as its limits allow, and a worker has a thousand turns.
        async with run.shell.gathering:
            with observe("collect", run.skill_name, skill=run.skill_name, call_id=self._context.call_id) as activity:
                for request in run.requests:
                    try:
                        await self._read(request)
                    except ExecutionError as error:
                        self.warnings.append(f"outputs {', '.join(request.globs[:_SHOWN_NAMES])}: {error}")
                files = self._files.values()
                activity.attributes.update(files=len(files), bytes=sum(file.size for file in files))
            await asyncio.to_thread(self._describe)
            self.primary = primary_of(list(files), omit, run.shell.hidden)
            self._files.clear()

    async def _read(self, request: OutputRequest) -> None:
        workspace = self._run.workspace
        collected = await asyncio.to_thread(
            workspace.collect,
            request.globs,
            max_files=request.max_files,
            max_file_bytes=request.max_file_bytes,
            max_total_bytes=request.max_total_bytes,
        )
        kept = [file for file in collected.files if file.size or not self._failed]
        if request.exported:
            self._export(kept, request.exported)
            return
        empty = [file.name for file in collected.files if file not in kept]
        if empty:
            # An empty file is the output file of a command that failed before it wrote its output.
            self.warnings.append(f"empty files left out, as the command failed: {_shown(empty)}")
        self.warnings += _limits_hit(request, collected)
        for file in kept:
            if self._files.setdefault(file.name, file) is file:
                hidden = self._run.shell.hidden
                self._contents[file.name] = text_of(file.data, file.truncated, hidden) if request.inline else None
        saved: list[tuple[str, str]] = []
        if request.save:
            saved, problems = await _save(kept, request.name_template, self._services, self._context)
            self.saved.update(saved)
            self.warnings += problems
        record = {
            "globs": request.globs,
            "saved_as": [name for name, _ in saved],
            "versions": [version for _, version in saved],
            "limits_hit": list(collected.limits_hit),
        }
        await asyncio.to_thread(workspace.note_outputs, record)

    def _export(self, files: Sequence[CollectedFile], most: int) -> None:
        """Add the new files, unless another command ran meanwhile: its files cannot be distinguished."""
        fresh = [file for file in files if self._run.span.covers(file.changed_ns)]
        if fresh and not self._run.span.alone:
            self.warnings.append(
                f"new files were not looked at, as another command ran in this workspace meanwhile: name those of this "
                f"one in output_files. New: {_shown([file.name for file in fresh])}"
            )
            return
        self._files.update((file.name, file) for file in fresh[:most])

    def _describe(self) -> None:
        """Create the entries. The smallest contents are inlined first, so that most of them fit into the result."""
        sizes = {name: _size_in_json(content) for name, content in self._contents.items() if content}
        room, omitted = _MAX_INLINE, set()
        for name in sorted(sizes, key=lambda name: sizes[name]):
            if sizes[name] > room:
                omitted.add(name)
            else:
                room -= sizes[name]
        for name, content in self._contents.items():
            self.entries[name] = entry_of(self._files[name], None if name in omitted else content)
        if omitted:
            first, many = min(omitted), len(omitted)
            what = f"the contents of {many} files were" if many > 1 else f"the content of {first} was"
            more = f"; first: {first}" if many > 1 else ""
            self.warnings.append(f"{what} left out: the result holds {_MAX_INLINE} bytes{more}")


def _size_in_json(content: str) -> int:
    """Return the number of characters of a text in a result. JSON writes a control character with six."""
    return len(json.dumps(content, ensure_ascii=False)) - len('""')


def _limits_hit(request: OutputRequest, collected: Collected) -> list[str]:
    values = request.model_dump(include={"max_files", "max_file_bytes", "max_total_bytes"})
    notes = [f"outputs reached {name} ({values[name]})" for name in collected.limits_hit if name in values]
    notes += [f"outputs reached {name}" for name in collected.limits_hit if name not in values]
    # A pattern can match a file that a limit excluded, or that cannot be read.
    kept_out = collected.problems or set(collected.limits_hit) - {"max_file_bytes"}
    missed = [] if kept_out else unmatched(request.globs, collected.files)
    if missed:
        notes.append(f"the workspace has no file that matches {_shown(missed)}")
    return [*notes, *collected.problems]


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


async def finish(
    run: PreparedRun, result: CommandResult, services: ToolServices, context: ToolContext
) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]:
    """Return the result of a run whose command has ended, and its effects. Those of the preparation are first.

    Empty values are omitted, except ``exit_code``, ``stdout`` and ``duration_ms`` (milliseconds). Raises
    :class:`ExecutionError` for a command that was not run.
    """
    if result.error is not None:
        raise ExecutionError(f"The command could not be run safely: {result.error}")
    # The text for the editor is not an output file.
    await run.close()
    exit_code = result.exit_code if result.signal is None else -result.signal
    stdout, stderr = _text(result.stdout), _text(result.stderr)
    warnings = [*run.warnings, *_ending(run, result)]
    if result.stdout_dropped or len(result.stdout) > MAX_OUTPUT:
        warnings.append("stdout truncated")
    if result.stderr_dropped or len(result.stderr) > MAX_OUTPUT:
        warnings.append("stderr truncated")
    omit: bool = run.asked.omit_inline_content or services.config.get(SkillOptions.RUN_OMIT_INLINE)
    outputs = _OutputFiles(run, services, context, failed=exit_code != 0 or result.timed_out)
    await outputs.collect(omit=omit)
    warnings += outputs.warnings
    if exit_code == 0 and not (result.stdout or result.stderr or outputs.entries or warnings):
        warnings.append("the output is empty: the command printed nothing, and no output files were found")
    found = {
        "exit_code": exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "timed_out": result.timed_out,
        "duration_ms": round(result.duration * 1000),
        "staged_inputs": [dict(record) for record in run.staged_inputs],
        "output_files": [outputs.entries[name] for name in sorted(outputs.entries)],
        "primary_output": outputs.primary,
        "artifact_files": [{"name": name, "version": version} for name, version in outputs.saved.items()],
        "warnings": list(dict.fromkeys(warnings)),
    }
    effects = (artifacts_effect(context.call_id, outputs.saved.items()),) if outputs.saved else ()
    # A command can also use a secret in the name of a file.
    shown = {name: run.shell.hidden.in_data(value) for name, value in found.items() if value or name in _ALWAYS}
    return shown, (*run.effects, *effects)


def _ending(run: PreparedRun, result: CommandResult) -> list[str]:
    """Return how the command ended, if it did not end by itself."""
    notes = []
    if result.timed_out:
        notes.append(f"the command was ended because it ran longer than {run.timeout:g} s")
    if result.limit is not None and not (result.timed_out and result.limit == "wall_time"):
        notes.append(limit_text(result.limit, replace(run.shell.limits, wall_time=run.timeout)))
    elif result.signal is not None and not result.timed_out:
        notes.append(f"the command was ended by signal {result.signal}")
    return [*notes, *result.notes]


def _text(output: bytes) -> str:
    """Return output as text of at most 16 KiB."""
    if len(output) <= MAX_OUTPUT:
        return output.decode("utf-8", "replace")
    return output[:MAX_OUTPUT].decode("utf-8", "ignore")


async def _save(
    files: Sequence[CollectedFile], prefix: str, services: ToolServices, context: ToolContext
) -> tuple[list[tuple[str, str]], list[str]]:
    """Save ``files`` under ``prefix`` and their names. Return names and versions of the artifacts, and warnings."""
    store = services.artifacts
    if not files:
        return [], []
    if store is None:
        return [], [f"output files were not saved, they stay in the workspace: {NO_ARTIFACTS}"]
    hidden = services.shell.hidden if services.shell is not None else HiddenValues()
    saved: list[tuple[str, str]] = []
    # Files with the same reason are one warning.
    failed: dict[tuple[type[SkillsError] | None, str], list[tuple[str, str]]] = {}
    for file in files:
        name = f"{prefix}{file.name}"
        if file.truncated:
            too_large = f"the file has {file.size} bytes, more than the limits of outputs allow"
            failed.setdefault((None, "too-large"), []).append((file.name, too_large))
            continue
        if hidden.in_text(name) != name:
            failed.setdefault((None, "hidden"), []).append((file.name, "the name contains a value of skills.env"))
            continue
        try:
            artifact = await asyncio.to_thread(store.save, context.owner, name, file.data, file.mime_type)
        except SkillsError as error:
            alike = (type(error), getattr(error, "reason", ""))
            failed.setdefault(alike, []).append((file.name, str(error)))
        else:
            saved.append((artifact.name, artifact.version))
    return saved, [_not_saved(files) for files in failed.values()]


def _not_saved(failed: Sequence[tuple[str, str]]) -> str:
    name, why = failed[0]
    return f"{name} was not saved: {why}" if len(failed) == 1 else f"{len(failed)} files were not saved; {name}: {why}"
