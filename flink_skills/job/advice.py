"""What a sound job may still regret."""

from __future__ import annotations

import re

from flink_skills.job.building import JobBuilder, effective_options
from flink_skills.job.unasked_models import unasked_models
from flink_skills.options import SkillOptions

__all__ = ["job_warnings"]

# The words by which Flink knows that a value is not to be shown.
_SECRET_OPTION = re.compile(
    r"'([^'\n]*(?:password|secret|api[-_.]?key|token|private[-_.]?key|sas[-_.]key|credential)[^'\n]*)'\s*=\s*"
    r"'((?:[^']|'')*)'",
    re.IGNORECASE,
)
_CHECKPOINTING = "execution.checkpointing.interval"


def job_warnings(builder: JobBuilder) -> list[str]:
    """Warnings for people who start the job."""
    from flink_skills.flink.option_keys import misspelt_options

    read, graph = builder.read, builder.graph
    found = [*builder.warnings, *unasked_models(read, builder.agents)]
    found += [match.problem for match in builder.name_matches() if match.problem and not match.is_error]
    if read.job.errors is None and effective_options(graph).get(SkillOptions.TURN_ON_ERROR) == "emit":
        found.append(
            "there is no 'errors' table: a turn that fails is only in the log of its TaskManager (or set "
            "skills.turn.on-error: fail)"
        )
    if graph.option(_CHECKPOINTING) in (None, "", "0", "0 ms", "0 s", "0ms", "0s"):
        found.append(
            f"checkpoints are disabled ({_CHECKPOINTING}): after a failure the job does not restart, and conversations "
            "and turns in progress are lost"
        )
    if not graph.is_local and read.settings.cluster_only:
        keys = ", ".join(read.settings.cluster_only)
        found.append(f"a running cluster does not accept {keys} from a job")
    for key, near in misspelt_options(read.settings.flink).items():
        found.append(f"flink: Flink has no option {key!r}, did you mean {near!r}?")
    tables = read.document.data.get("tables")
    for match in _SECRET_OPTION.finditer(tables if isinstance(tables, str) else ""):
        if match[2] and "${" not in match[2]:
            found.append(f"tables: {match[1]!r} has its value in the file: write ${{env:NAME}} or ${{file:/path}}")
    return found
