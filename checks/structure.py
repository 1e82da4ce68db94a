"""Structure of the project: ``python -m checks.structure``.

Today's violations are in ``checks/structure.yaml``. A violation that is not in the list fails, and so does an entry of
the list that is not a violation any more: the list may only shrink.
"""

from __future__ import annotations

import sys
from pathlib import Path

from checks.contributing import extension_points, package_map
from checks.docstrings import obsolete_exceptions
from checks.findings import LIST, Finding, read_known, unexpected
from checks.imports import cycles, faces, folder_cycles, private_imports, read_graph
from checks.text import banners, codes, lint_exceptions, sizes

__all__ = ["findings", "main"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, TESTS = "flink_skills", "tests"


def findings(root: Path = ROOT) -> list[Finding]:
    """Return all violations, those in the list included."""
    graph = read_graph(PACKAGE, TESTS)
    return [
        *cycles(graph, PACKAGE),
        *folder_cycles(graph, PACKAGE),
        *private_imports(graph, PACKAGE, TESTS, faces(root, PACKAGE)),
        *sizes(root),
        *lint_exceptions(root),
        *codes(root),
        *banners(root),
        *obsolete_exceptions(root),
        *package_map(root, PACKAGE),
        *extension_points(root, PACKAGE),
    ]


def main() -> int:
    """Print what differs from the list, and return the exit code."""
    messages = unexpected(findings(), read_known(ROOT / LIST))
    for message in messages:
        print(message)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
