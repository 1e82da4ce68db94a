"""Preparation of a run, before its command starts."""

from __future__ import annotations

import asyncio
import os
import posixpath
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flink_skills.artifacts import Reference, parse_reference
from flink_skills.execution.workspace import (
    WRITABLE,
    Placed,
    WorkspacePathError,
    default_place,
    media_type,
    parts_of,
    place_parts,
)
from flink_skills.options import SkillOptions
from flink_skills.telemetry.activity import observe
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.commands.folders import stage_skills, standard_input, with_copies
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.runs.prepared_run import (
    NO_ARTIFACTS,
    Places,
    PreparedRun,
    RunSpan,
    export_request,
    make_output_dir,
    remove_run,
    requests_of,
    write_editor,
)
from flink_skills.tools.runs.run_arguments import RunArguments, RunInput
from flink_skills.tools.skills.skill_face import ToolServices, caller_view, known_skill
from flink_skills.tools.skills.skill_paths import check_staged, relative_path, skill_file
from flink_skills.tools.state import check_commands, pin_effect, touch_effect

_SNIFFED = 8192


class _StagedInputs:
    """Inputs in a workspace: records for the result, warnings, and effects, which are the versions that were pinned."""

    def __init__(self, places: Places, services: ToolServices, context: ToolContext) -> None:
        self._places = places
        self._workspace = places.workspace
        self._services = services
        self._context = context
        self.records: list[Mapping[str, Any]] = []
        self.warnings: list[str] = []
        self.effects: list[Mapping[str, Any]] = []

    async def stage(self, one: RunInput) -> None:
        """Stage the next input.

        Raises :class:`ArgumentError` for an input that does not exist or that the job does not allow, and
        :class:`~flink_skills.errors.ExecutionError` if it cannot be written to the workspace.
        """
        reference = self._reference(one.source)
        if reference.scheme == "artifact":
            placed, mime_type = await self._artifact(one, reference)
        else:
            placed, mime_type = await self._file(one, reference)
        if placed.skipped:
            self.warnings.append(f"{one.source}: {placed.skipped} links and the like in it were left out")
        if one.mode == "link" != placed.mode:
            self.warnings.append(f"{one.source} was copied: only what is in the workspace is linked")
        record = {"name": placed.to, "original_name": one.source}
        if mime_type:
            record["mime_type"] = mime_type
        self.records.append({**record, "size_bytes": placed.size_bytes})

    def _reference(self, text: str) -> Reference:
        """Return the reference ``text``. A path that a result or a skill shows stands for the reference of its file."""
        path = text.strip()
        if "://" not in path:
            found = skill_file(path, caller_view(self._services, self._context))
            if found is not None:
                return Reference("skill", found.path, skill=found.skill)
            if path.startswith(("/", "$")) or relative_path(path) is not None:
                inside = self._places.relative("input", path)
                if inside is not None:
                    return Reference("workspace", inside)
        return parse_reference(text)

    async def _artifact(self, one: RunInput, reference: Reference) -> tuple[Placed, str]:
        store, state = self._services.artifacts, self._context.skill_state
        if store is None:
            raise ArgumentError(f"input {one.source!r}: {NO_ARTIFACTS}.")
        name, version = reference.path, reference.version
        to = _place(one.to, posixpath.basename(name), self._places)
        pinned = state.pinned(to, name) if state is not None and one.pin else None
        if version is None and state is not None:
            # The version that this conversation saved is in its state, so that a restart uses the same one.
            version = pinned or state.artifacts.get(name)
        artifact, data = await asyncio.to_thread(store.load, self._context.owner, name, version)
        record = {"from": one.source, "resolved": artifact.ref, "version": artifact.version}
        placed = await asyncio.to_thread(self._workspace.place, to, data=data, record=record)
        if one.pin and pinned is None and reference.version is None:
            self.effects.append(pin_effect(to, artifact.name, artifact.version))
        return placed, artifact.mime_type

    async def _file(self, one: RunInput, reference: Reference) -> tuple[Placed, str]:
        source, base = await self._source(one.source, reference)
        record = {"from": one.source, "resolved": str(source), "version": None}
        root = self._workspace.root
        if source.is_relative_to(root):
            check_staged(source.relative_to(root).as_posix(), caller_view(self._services, self._context))
        to = _place(one.to, base, self._places)
        placed = await asyncio.to_thread(self._workspace.place, to, source=source, mode=one.mode, record=record)
        return placed, await asyncio.to_thread(self._mime_type, placed, source)

    async def _source(self, text: str, reference: Reference) -> tuple[Path, str]:
        """Return the source file or directory, and its name."""
        base = posixpath.basename(reference.path.rstrip("/"))
        if reference.scheme == "workspace":
            return self._workspace.root / _relative(text, reference.path, self._places), base
        if reference.scheme == "host":
            return await asyncio.to_thread(_granted, text, reference.path, self._services), base
        view = caller_view(self._services, self._context)
        skill = view.get(known_skill(reference.skill, view))
        path = posixpath.normpath(reference.path.replace("\\", "/").lstrip("/"))
        if skill is None or path.split("/", 1)[0] == "..":
            raise ArgumentError(f"input {text!r} leads out of the skill: name a file of it.")
        folder = await asyncio.to_thread(self._workspace.stage, skill)
        return folder / path, base or skill.name

    def _mime_type(self, placed: Placed, source: Path) -> str:
        """Return the media type of a staged file, "" for a directory."""
        path = placed.to if placed.mode == "copy" else source.relative_to(self._workspace.root).as_posix()
        try:
            return media_type(path, self._workspace.read_part(path, 0, _SNIFFED).data)
        except WorkspacePathError:
            return ""


def _relative(source: str, path: str, places: Places) -> str:
    found = places.relative("input", path)
    if found is None:
        raise ArgumentError(f"input {source!r} is outside the workspace: write workspace://out/… or another of its.")
    # inputs/x means work/inputs/x, as in other paths.
    return f"work/{found}" if found.startswith("inputs/") else found


def _granted(source: str, path: str, services: ToolServices) -> Path:
    """Return the real path of a file of the host, if the job allows it."""
    option = SkillOptions.RUN_HOST_INPUTS
    granted = [os.path.realpath(folder) for folder in services.config.get(option)]
    if not granted:
        raise ArgumentError(f"input {source!r}: this job grants no files of the machine ({option.key} is empty).")
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(folder) for folder in granted):
        raise ArgumentError(f"input {source!r}: this job grants files below {', '.join(granted)} only ({option.key}).")
    if services.shell is not None:
        workspaces = Path(os.path.realpath(services.shell.workspaces.root))
        # A granted directory can contain the workspaces of all keys.
        if real.is_relative_to(workspaces) or workspaces.is_relative_to(real):
            raise ArgumentError(f"input {source!r} has workspaces in it: name files of this one as workspace://path.")
    return real


def _place(to: str, base: str, places: Places) -> str:
    """Return the place of an input in the workspace: in ``work/inputs``, unless ``to`` names a folder of it."""
    text = to.strip().replace("\\", "/")
    if not text:
        return default_place(base)
    path = places.relative("inputs.to", f"{text}{base}" if text.endswith("/") else text)
    if path is None:
        raise ArgumentError(f"inputs.to {to!r} leads out of the workspace: write work/inputs/… or leave it out.")
    first = path.split("/", 1)[0]
    if first not in ("work", "inputs", "out", "runs", "skills"):
        path = f"work/inputs/{path}"
    return "/".join(place_parts(path))


# Seconds for a command if neither the job nor the model sets a timeout.
_DEFAULT_TIMEOUT = 300.0

# Seconds. Kernels tick each 1 to 10 ms. A file system that stores whole seconds is not waited for.
_MAX_TICK = 0.03
_EDITOR_VARIABLES = ("EDITOR", "VISUAL")


async def prepare(
    asked: RunArguments, services: ToolServices, context: ToolContext, *, tool: str = "skill_run"
) -> PreparedRun:
    """Stage the skill and the inputs, and validate the arguments. ``tool`` is the tool that the model called.

    Raises :class:`ArgumentError` if the model can fix the problem, and :class:`~flink_skills.errors.SkillsError` if
    the workspace cannot be used. Both are error results of the tool.
    """
    shell = services.shell
    if shell is None:
        raise ArgumentError(f"This job runs no commands: {SkillOptions.SHELL_ENABLED.key} is false.")
    if "\0" in asked.command:
        raise ArgumentError("The command holds a NUL character, which no program takes. Write it without.")
    view = caller_view(services, context)
    skill = known_skill(asked.skill, view)
    _check_loaded(skill, services, context, tool)
    check_commands(view, context.skill_state, skill)
    clashing = [name for name in _EDITOR_VARIABLES if asked.editor_text is not None and name in asked.env]
    if clashing:
        raise ArgumentError(f"editor_text sets EDITOR and VISUAL, and env has {clashing[0]} too: leave one out.")
    workspace = await context.get_workspace()
    names = dict.fromkeys([*(context.skill_state or ()), skill])
    with observe("stage", skill, skill=skill, call_id=context.call_id) as activity:
        staged = await asyncio.to_thread(stage_skills, workspace, names, view)
        originals = {original: copy for original, copy in staged.values() if original}
        # Before the directory: the files of a command that starts and ends meanwhile must not count for this one.
        span = RunSpan(workspace.root)
        run_dir: Path | None = None
        try:
            run_dir = await asyncio.to_thread(workspace.new_run)
            places = Places(workspace, staged[skill][1], run_dir, workspace.out_dir, originals)
            run = await _prepare(asked, skill, places, services, context, shell=shell, span=span)
        except BaseException:
            span.end()
            if run_dir is not None:
                await asyncio.to_thread(remove_run, workspace, run_dir)
            raise
        sizes = [int(record.get("size_bytes", 0)) for record in run.staged_inputs[len(context.staged_inputs) :]]
        activity.attributes.update(files=len(sizes), bytes=sum(sizes))
    return run


async def _prepare(
    asked: RunArguments,
    skill: str,
    places: Places,
    services: ToolServices,
    context: ToolContext,
    *,
    shell: ShellRunner,
    span: RunSpan,
) -> PreparedRun:
    span.since = await asyncio.to_thread(_time_after, places.run_dir)
    env = dict(asked.env)
    if "OUTPUT_DIR" in env:
        places = replace(places, output_dir=await asyncio.to_thread(_output_dir, env["OUTPUT_DIR"], places))
        env["OUTPUT_DIR"] = str(places.output_dir)
    # All arguments are validated before the command has any effect.
    requests, dropped = requests_of(asked, places, services.config)
    if not asked.output_files and asked.outputs is None:
        requests = (export_request(places),)
    inputs = _StagedInputs(places, services, context)
    for one in asked.inputs:
        await inputs.stage(one)
    cwd, escaped = await asyncio.to_thread(places.cwd, asked.cwd)
    if asked.editor_text is not None:
        editor = await asyncio.to_thread(write_editor, places.workspace, places.run_dir.name, asked.editor_text)
        env.update(dict.fromkeys(_EDITOR_VARIABLES, str(editor)))
    timeout, late = _timeout(asked, services, shell)
    loaded = context.skill_state is not None and skill in context.skill_state
    return PreparedRun(
        shell=shell,
        asked=asked,
        command=with_copies(asked.command, places.originals),
        places=places,
        span=span,
        skill_name=skill,
        cwd=cwd,
        env=env,
        stdin=await standard_input(asked.stdin, places.workspace),
        timeout=timeout,
        requests=requests,
        staged_inputs=(*context.staged_inputs, *inputs.records),
        warnings=tuple(text for text in (escaped, late, *inputs.warnings, *dropped) if text),
        effects=(*([touch_effect(skill)] if loaded else []), *inputs.effects),
    )


def _check_loaded(skill: str, services: ToolServices, context: ToolContext, tool: str) -> None:
    """Raise :class:`ArgumentError` if the job requires that a model loads a skill before it runs it."""
    if not services.config.get(SkillOptions.RUN_REQUIRE_LOADED):
        return
    if context.skill_state is None or skill not in context.skill_state:
        load = "load_skill" if "load_skill" in services.settings.tools else "skill_load"
        raise ArgumentError(f"{tool} requires {load} first for {skill!r}: load it, read what it says, then run.")


def _output_dir(text: str, places: Places) -> Path:
    """Return the directory of ``env.OUTPUT_DIR``. Create it if it is missing."""
    path = places.relative("OUTPUT_DIR", text)
    if path is None:
        raise ArgumentError(f"OUTPUT_DIR {text!r} is outside the workspace: name a folder like out/report.")
    try:
        parts = parts_of(path, WRITABLE)
    except WorkspacePathError as error:
        raise ArgumentError(f"OUTPUT_DIR: {error}") from None
    return make_output_dir(places.workspace, parts)


def _timeout(asked: RunArguments, services: ToolServices, shell: ShellRunner) -> tuple[float, str]:
    """Return the timeout in seconds, and a warning if the model requested more than the job allows."""
    forced: float = services.config.get(SkillOptions.RUN_TIMEOUT)
    wanted = forced or asked.timeout or _DEFAULT_TIMEOUT
    timeout = min(wanted, shell.limits.wall_time)
    late = asked.timeout is not None and asked.timeout > timeout
    return timeout, f"this job allows commands {timeout:g} s, not {asked.timeout:g} s" if late else ""


def _time_after(folder: Path) -> int:
    """Return a time of the file system after the creation of ``folder``. Later changes are those of the command.

    The clock of a file system advances in steps of some milliseconds, and a file of an earlier run can be as new.
    """
    made = now = folder.lstat().st_ctime_ns
    give_up = time.monotonic() + _MAX_TICK
    while now == made and time.monotonic() < give_up:
        os.utime(folder)
        now = folder.lstat().st_ctime_ns
        if now == made:
            time.sleep(0.0005)
    return now
