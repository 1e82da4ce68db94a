"""Runs the blocks of a page one after another in one directory, as a reader does in one terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.docs.pages import ROOT, blocks_of, name_of

__all__ = ["walk"]

_SECONDS = 600
#: Runs a block with the variables and functions of the blocks before it.
_SHELL = """\
set -eu -o pipefail
[ ! -f "$SHELL_STATE" ] || . "$SHELL_STATE"
{block}
{{ export -p; declare -f || true; }} > "$SHELL_STATE"
"""


def walk(
    page: Path,
    folder: Path,
    kinds: Collection[str],
    environment: Mapping[str, str],
    replace: Mapping[str, str] | None = None,
) -> None:
    """Write the files of the page and run the blocks of these kinds, in the order of the page.

    Args:
        page: The Markdown page.
        folder: Directory in which the blocks run. The one above it is used for the test's own files.
        kinds: Arguments of ``run``.
        environment: More environment variables.
        replace: Strings to replace in the files, such as an address.

    Raises:
        AssertionError: A block failed, or printed something other than its output on the page.
    """
    state = folder.parent / "shell-state"
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    command = programs / "flink-skills"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flink_skills.cli "$@"\n')
    command.chmod(0o755)
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYFLINK_")},
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"])),
        **environment,
        "SHELL_STATE": str(state),
    }
    for block in blocks_of(page):
        if block.kind == "file":
            path = folder / block.argument
            path.parent.mkdir(parents=True, exist_ok=True)
            text = block.text
            for old, new in (replace or {}).items():
                text = text.replace(old, new)
            path.write_text(text, encoding="utf-8")
        elif block.argument in kinds:
            language = [sys.executable, "-c", block.text]
            shell = ["bash", "-c", _SHELL.format(block=block.text)]
            done = subprocess.run(
                language if block.language == "python" else shell,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            place = f"{name_of(page)}:\n{block.text}\n"
            assert done.returncode == 0, f"{place}{done.stdout}\n{done.stderr}"
            if block.output is not None:
                assert done.stdout.strip() == block.output.strip(), f"{place}another output:\n{done.stdout}"
