"""The words that a job's main gets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

__all__ = ["Arguments", "read_arguments"]

MODULE = "flink_skills.job"
# What PyFlink's driver reads itself, each with a value, before the words of the program.
_OF_THE_DRIVER = {
    **dict.fromkeys(("-pym", "--pyModule"), "module"),
    **dict.fromkeys(("-py", "--python", "-pyfs", "--pyFiles", "-pyarch", "--pyArchives", "-pyreq"), ""),
    **dict.fromkeys(("--pyRequirements", "-pyexec", "--pyExecutable", "-pyclientexec", "--pyClientExecutable"), ""),
    **dict.fromkeys(("-pypath", "--pyPythonPath"), ""),
}


@dataclass(frozen=True)
class Arguments:
    """What follows ``-pym flink_skills.job``: the file, ``--set`` words, and what is wrong with them."""

    config: str = ""
    assignments: tuple[str, ...] = ()
    problem: str = ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def read_arguments(words: Sequence[object]) -> Arguments | None:
    """Read the words as PyFlink's driver and the job's main do; None where the main is a program of somebody else."""
    texts = [str(word) for word in words]
    module, at = "", 0
    while at < len(texts):
        option, sign, value = texts[at].partition("=")
        if option not in _OF_THE_DRIVER:
            break
        at += 1
        if not sign:
            value = texts[at] if at < len(texts) else ""
            at += 1
        if _OF_THE_DRIVER[option] == "module":
            module = value
    if module != MODULE:
        return None
    parser = _Parser(add_help=False)
    parser.add_argument("--config", metavar="FILE", default="")
    parser.add_argument("--set", action="append", default=[])
    try:
        given = parser.parse_args(texts[at:])
    except ValueError as error:
        return Arguments(problem=f"args: {error}")
    return Arguments(
        given.config, tuple(given.set), "" if given.config else "args: flink_skills.job needs --config FILE"
    )
