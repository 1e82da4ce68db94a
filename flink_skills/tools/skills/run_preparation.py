"""Preparation of a run, before its command starts."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

from flink_skills.execution.workspace import WRITABLE, WorkspacePathError, parts_of
from flink_skills.options import SkillOptions
from flink_skills.telemetry.activity import observe
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.commands.folders import stage_skills, standard_input
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.runs.prepared_run import PreparedRun, RunSpan, remove_run
from flink_skills.tools.runs.run_arguments import RunArguments
from flink_skills.tools.runs.run_outputs import export_request, requests_of
from flink_skills.tools.runs.run_paths import Places, make_output_dir, write_editor
from flink_skills.tools.skills.run_inputs import stage_inputs
from flink_skills.tools.skills.services import ToolServices
from flink_skills.tools.skills.skill_face import caller_view, known_skill
from flink_skills.tools.state import touch_effect

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
    inputs = await stage_inputs(asked.inputs, places, services, context)
    cwd, escaped = await asyncio.to_thread(places.cwd, asked.cwd)
    if asked.editor_text is not None:
        editor = await asyncio.to_thread(write_editor, places.workspace, places.run_dir.name, asked.editor_text)
        env.update(dict.fromkeys(_EDITOR_VARIABLES, str(editor)))
    timeout, late = _timeout(asked, services, shell)
    loaded = context.skill_state is not None and skill in context.skill_state
    return PreparedRun(
        shell=shell,
        asked=asked,
        command=places.with_copies(asked.command),
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
