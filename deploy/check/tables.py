"""What the tables of a job name: options of connectors, without looking at columns or queries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deploy.check.jobs import Job, resolved

__all__ = ["table_options"]

# A literal comes first, so that what looks like a comment in it is none.
_COMMENT = re.compile(r"('(?:[^']|'')*')|--[^\n]*|/\*.*?\*/", re.DOTALL)
_OPTION = re.compile(r"'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'")


def table_options(job: Job) -> Iterator[tuple[str, str]]:
    """Key and value of each option in WITH clauses, with the references replaced whose values the overlay tells."""
    text = job.document.get("tables")
    if not isinstance(text, str):
        return
    known = job.environment("jobmanager")
    for key, value in _OPTION.findall(_COMMENT.sub(lambda match: match[1] or " ", text)):
        yield key.replace("''", "'"), resolved(value.replace("''", "'"), known)
