"""Start of the backend for commands in another process, to learn whether this machine isolates them as the job asks.

The launcher of commands forks. In a process with Flink's libraries this would write messages of gRPC to stderr.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from flink_skills.errors import ConfigError, SkillsError
from flink_skills.execution.workspace.scratch import check_commands, scratch_workspaces
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools import ShellRunner

__all__ = ["check_isolation"]

# Backends whose start needs neither a network nor the modules of the job.
_TRIED = ("auto", "bwrap", "hygiene", "landlock")
_TIMEOUT = 120.0
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; import runpy; runpy.run_module(sys.argv[1], run_name='__main__')"


def check_isolation(config: SkillConfig) -> None:
    """Raise :class:`ConfigError` if commands cannot run on this machine with the options of a job."""
    check_commands(config)
    if config.get(SkillOptions.SHELL_BACKEND) not in _TRIED:
        return
    try:
        done = subprocess.run(
            # "-m" would import from the current folder first, which may be the folder of an untrusted skill.
            [sys.executable, "-I", "-c", _PROGRAM, __name__, *_search_path()],
            input=json.dumps(config.to_json()),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"the backend for commands has not started within {_TIMEOUT:g} s") from None
    if done.returncode != 0:
        raise ConfigError(f"the backend for commands cannot be started: {done.stderr.strip()[-500:]}")
    problem = json.loads(done.stdout.splitlines()[-1])
    if problem is not None:
        raise ConfigError(problem)


def _search_path() -> list[str]:
    """Return the folders for modules: that of this package, and those of this process without the current one."""
    here = Path.cwd()
    return [str(Path(__file__).parents[2]), *(path for path in sys.path if path and Path(path) != here)]


async def _start(config: SkillConfig) -> None:
    with scratch_workspaces(config) as workspaces:
        shell = await ShellRunner.start(config, workspaces)
        await shell.close()


def _main() -> None:
    problem = None
    try:
        asyncio.run(_start(SkillConfig(json.load(sys.stdin))))
    except SkillsError as error:
        problem = str(error)
    sys.stdout.write(f"{json.dumps(problem)}\n")


if __name__ == "__main__":
    _main()
