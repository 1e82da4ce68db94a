"""``python -m tests.kernel.summary REPORT``: summary of a complete run of the escape suite, as JSON.

The input is a report of pytest (``--junitxml=REPORT -o junit_family=xunit1``). The suite records the kernel, the uid
and the level of each backend in it, so the run may have been in a virtual machine, in a pod or on a node.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from tests.kit.outcomes import node_id

__all__ = ["summary"]

_BACKEND = re.compile(r"[\[-](none|hygiene|landlock|bwrap)-(?:same|switched|root)|::Test(Hygiene|Landlock|Bwrap)::")
_MACHINE = ("kernel", "landlock_abi", "uid", "user_namespaces")
_MAX_LENGTH = 200  # characters of the reason of a skip


def summary(report: bytes) -> dict[str, Any]:
    """Return the kernel, the uid of the suite, the state of user namespaces, and the counts of each backend.

    ``level`` of a backend is None if it did not start.
    """
    cases = list(ET.fromstring(report).iter("testcase"))
    machine: dict[str, str] = {}
    backends: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for case in cases:
        name = node_id(case)
        noted = {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
        machine |= {key: noted[key] for key in _MACHINE if key in noted}
        found = _BACKEND.search(name)
        backend = (found[1] or found[2].lower()) if found else "all"
        about = backends.setdefault(backend, {"level": None, "passed": 0, "failed": 0, "skipped": Counter()})
        about["level"] = noted.get("level", about["level"])
        what = _result(case)
        if what == "skipped":
            reason = next(part.get("message") or "" for part in case if part.tag == "skipped")
            about["skipped"][reason[:_MAX_LENGTH]] += 1
        else:
            about[what] += 1
            if what == "failed":
                failed.append(name)
    for about in backends.values():
        about["skipped"] = dict(about["skipped"].most_common())
    return {**{key: machine.get(key) for key in _MACHINE}, "backends": dict(sorted(backends.items())), "failed": failed}


def _result(case: Element) -> str:
    tags = {part.tag for part in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


if __name__ == "__main__":
    print(json.dumps({**summary(Path(sys.argv[1]).read_bytes()), "tests": "all"}, indent=2))
