"""The numbers of the baseline may only fall."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from checks.prose.baseline import read_baseline
from checks.prose.check import BASELINE, BUDGETS, RULES, ZEROS, check, check_commits
from tests.checks.conftest import WriteTree

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = "# Two run at once.\n"
LISTED = """
hits: {B25: {tests: 2}}
budgets: {docs: {D01: 5000}}
"""
PAGE = "what is this about"


@pytest.fixture
def project(write_tree: WriteTree) -> WriteTree:
    """Return a function that writes a project with two hits of B25 in tests, which is all that its baseline allows."""

    def write(files: dict[str, str]) -> Path:
        usual = {"tests/a.py": AT_ONCE, "tests/b.py": AT_ONCE, "docs/page.md": PAGE, BASELINE: LISTED, ZEROS: "[]"}
        rules = {name: (ROOT / name).read_text(encoding="utf-8") for name in (RULES, BUDGETS)}
        return write_tree({**usual, **rules, **files})

    return write


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=name", "-c", "user.email=name@host", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def test_as_many_hits_as_listed_pass(project: WriteTree) -> None:
    root = project({})

    assert check(root) == []
    assert read_baseline(root / BASELINE).hits == {"B25": {"tests": 2}}


def test_more_hits_fail_and_the_new_ones_are_listed(project: WriteTree) -> None:
    root = project({})
    git(root, "init")
    git(root, "add", "--all")
    git(root, "commit", "-m", "start")
    project({"tests/b.py": AT_ONCE + "\n" + AT_ONCE, "tests/new.py": AT_ONCE})
    git(root, "commit", "--all", "-m", "change a file, and do not add the other")

    (message,) = check(root)

    assert message.startswith(
        f"B25 failed: at once: tests has 4 hits, and its ceiling is 2 ({BASELINE}). Write immediately"
    )
    assert message.splitlines()[2:] == ["    tests/b.py:3: Two run at once.", "    tests/new.py:1: Two run at once."]


def test_more_hits_without_git_are_listed_with_the_known_ones(project: WriteTree) -> None:
    (message,) = check(project({"tests/c.py": AT_ONCE}))

    assert [line.split()[0] for line in message.splitlines()[2:]] == ["tests/a.py:1:", "tests/b.py:1:", "tests/c.py:1:"]


def test_a_package_without_a_number_has_no_hits(project: WriteTree) -> None:
    (message,) = check(project({"docs/other.md": "Both run at once."}))

    assert message.startswith("B25 failed: at once: docs has 1 hits, and its ceiling is 0")


def test_fewer_hits_lower_the_number(project: WriteTree, capsys: pytest.CaptureFixture[str]) -> None:
    root = project({"tests/b.py": ""})

    assert check(root) == []
    assert read_baseline(root / BASELINE).hits == {"B25": {"tests": 1}}
    assert f"{BASELINE} is lowered" in capsys.readouterr().out
    (root / "tests/b.py").write_text(AT_ONCE)
    assert check(root)


def test_failure_keeps_the_numbers(project: WriteTree) -> None:
    root = project({"tests/b.py": "", "docs/other.md": "Both run at once."})

    assert check(root)
    assert read_baseline(root / BASELINE).hits == {"B25": {"tests": 2}}


@pytest.mark.parametrize(
    ("page", "listed", "lowered"),
    [
        (PAGE, 2500, 2500),
        (PAGE, 2625, 2625),
        (PAGE, 2700, 2625),
        ("there are the pages", 2500, None),
    ],
    ids=["no margin", "in the margin", "below the margin", "at the goal"],
)
def test_rates_fall_with_a_margin_down_to_their_goals(
    project: WriteTree, page: str, listed: int, lowered: int | None
) -> None:
    budgets = f"hits: {{B25: {{tests: 2}}}}\nbudgets: {{docs: {{D01: {listed}}}}}"
    root = project({"docs/page.md": page, BASELINE: budgets})

    assert check(root) == []
    assert read_baseline(root / BASELINE).budgets == ({"docs": {"D01": lowered}} if lowered else {})


def test_higher_rate_fails(project: WriteTree) -> None:
    (message,) = check(project({"docs/page.md": "what is what"}))

    assert message.startswith("D01 failed: 6666.7 per 10,000 words of docs are among 'what', and the ceiling is 5000.")


@pytest.mark.parametrize(
    ("zero", "fails"),
    [
        ("[{paths: [tests/*], rules: [B]}]", True),
        ("[{paths: [tests/*], kinds: [comment], rules: [B25]}]", True),
        ("[{paths: [docs/*], rules: [B]}]", False),
        ("[{paths: [tests/*], kinds: [message], rules: [B]}]", False),
        ("[{paths: [tests/*], rules: [M, B07]}]", False),
    ],
    ids=["rules", "rule", "other path", "other kind", "other rule"],
)
def test_some_parts_have_no_hit_whatever_is_listed(project: WriteTree, zero: str, fails: bool) -> None:
    messages = check(project({ZEROS: zero}))

    assert [message.splitlines()[0].partition(". ")[0] for message in messages] == [
        "B25 failed: at once (tests/a.py:1)",
        "B25 failed: at once (tests/b.py:1)",
    ][: 2 * fails]


def test_unused_exception_fails(project: WriteTree) -> None:
    (message,) = check(project({"docs/other.md": "<!-- prose: allow B25: no reason -->\nA page.\n"}))

    assert message.startswith("prose failed: an exception is not valid: B25 has no hit there (docs/other.md:1).")


def test_subjects_of_new_commits(project: WriteTree) -> None:
    root = project({})
    git(root, "init")
    git(root, "commit", "--allow-empty", "-m", "Tell what is old")
    git(root, "commit", "--allow-empty", "-m", "docs: add a page")
    git(root, "commit", "--allow-empty", "-m", "docs: describe what is new")

    (message,) = check_commits(root, "HEAD~2")

    assert message.startswith("C02 failed: clause in a subject: 'docs: describe what is new'.")
