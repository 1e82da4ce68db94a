"""The list of known findings may only shrink."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.findings import Finding, read_known, unexpected

LISTED = """
cycles:
  - - p.a
    - p.b
    - p.c
private-imports: 5
sizes:
  p/a.py: 600
"""
CYCLE = Finding("cycles", "p.a p.b p.c", "cycles failed: new")
IMPORTS = Finding("private-imports", "private-imports", "private-imports failed: more", 5)
SIZE = Finding("sizes", "p/a.py", "sizes failed: larger", 600)


@pytest.mark.parametrize(
    ("findings", "messages"),
    [
        ([CYCLE, IMPORTS, SIZE], []),
        ([CYCLE, IMPORTS, Finding("sizes", "p/a.py", "", 550)], []),
        ([CYCLE, IMPORTS, Finding("sizes", "p/a.py", "sizes failed: larger", 601)], ["sizes failed: larger"]),
        ([CYCLE, IMPORTS], ["sizes failed: p/a.py is not a violation any more"]),
        ([CYCLE, IMPORTS, SIZE, Finding("banners", "p/b.py:1", "banners failed: new")], ["banners failed: new"]),
        (
            [CYCLE, Finding("private-imports", "private-imports", "private-imports failed: more", 6), SIZE],
            ["private-imports failed: more"],
        ),
        (
            [CYCLE, Finding("private-imports", "private-imports", "", 4), SIZE],
            ["private-imports failed: the number fell to 4"],
        ),
        (
            [Finding("cycles", "p.a p.b", "cycles failed: new"), IMPORTS, SIZE],
            ["cycles failed: a cycle of 3 has shrunk (checks/structure.yaml). Replace its entry by p.a p.b."],
        ),
        (
            [Finding("cycles", "p.a p.d", "cycles failed: new"), IMPORTS, SIZE],
            ["cycles failed: new", "cycles failed: p.a p.b p.c is not a violation any more"],
        ),
        ([IMPORTS, SIZE], ["cycles failed: p.a p.b p.c is not a violation any more"]),
    ],
    ids=["as listed", "below", "above", "gone", "new", "number up", "number down", "shrunk", "other", "cycle gone"],
)
def test_only_what_is_listed_passes(tmp_path: Path, findings: list[Finding], messages: list[str]) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(LISTED)

    found = unexpected(findings, read_known(path))

    assert len(found) == len(messages)
    for message, beginning in zip(found, messages, strict=True):
        assert message.startswith(beginning)
