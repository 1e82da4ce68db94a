"""``flink-skills doctor``: what a program reads of it, what a person reads of it, and its exit codes.

Examines the internals of cli.ops.doctor, cli.shared_options and execution.isolation.backend_choice on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from flink_skills.cli.ops.doctor import LEVELS, enforced_sentence, gap_sentence
from flink_skills.cli.shared_options import LIMITS, limit_text
from flink_skills.execution import IsolationLevel, IsolationReport, Limits
from flink_skills.execution.isolation import REQUIRED, backend_choice
from tests.cli.conftest import FlinkSkills, Said
from tests.cli.passable import passable_folder

KEYS = {
    *("level", "backend", "proved", "not_enforced", "limits", "net", "kernel", "landlock_abi", "seccomp_outer"),
    *("uid", "skipped"),
}
HYGIENE = ("--set", "skills.shell.backend=hygiene", "--min-level", "HYGIENE")


@pytest.fixture
def doctor(flink_skills: FlinkSkills, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlinkSkills]:
    with passable_folder() as folder:
        monkeypatch.setattr("tempfile.tempdir", str(folder))

        def call(*words: object) -> Said:
            return flink_skills("doctor", *words)

        yield call


def reported(monkeypatch: pytest.MonkeyPatch, report: IsolationReport) -> None:
    """Have the machine be one of which this is found."""

    async def choose(config: object, workspaces: object) -> tuple[None, IsolationReport]:
        return None, report

    monkeypatch.setattr(backend_choice, "choose_backend", choose)


@pytest.mark.row("K6")
def test_json_has_the_keys_that_programs_rely_on(doctor: FlinkSkills) -> None:
    said = doctor("--format", "json", "--min-level", "NONE")
    report = said.json
    assert said.code == 0
    assert set(report) >= KEYS
    assert report["level"] in IsolationLevel.__members__
    assert report["backend"]
    assert report["proved"] == sorted(report["proved"])
    assert report["net"] == "denied"
    assert report["uid"] > 0
    assert isinstance(report["landlock_abi"], int)
    assert report["seccomp_outer"] in ("disabled", "strict", "filter", "unknown")
    assert list(report["limits"]) == [limit.name for limit in fields(Limits)] == list(LIMITS)


def test_options_of_the_job_are_what_is_reported(doctor: FlinkSkills) -> None:
    options = ("skills.shell.network=allow", "skills.shell.max-memory=64 mb", "skills.workspace.max-files=7")
    report = doctor("--format", "json", *HYGIENE, *(word for option in options for word in ("--set", option))).json
    assert (report["net"], report["backend"], report["level"]) == ("allowed", "hygiene", "HYGIENE")
    assert (report["limits"]["memory"], report["limits"]["workspace_files"]) == (64 << 20, 7)
    assert "read_outside" in report["not_enforced"]
    assert "survivors" in report["proved"]


@pytest.mark.row("K6")
def test_people_read_sentences_limits_with_units_and_reasons(doctor: FlinkSkills) -> None:
    said = doctor(*HYGIENE, "--set", "skills.shell.max-cpu-time=2 min")
    assert (said.code, said.stderr) == (0, "")
    lines = said.stdout.splitlines()
    assert lines[0].startswith("HYGIENE: ")
    assert "Backend hygiene" in lines[1]
    assert "A command cannot leave a process behind that keeps running." in said.stdout
    assert "A command can read files outside its workspace" in said.stdout
    limits = {line.split()[0]: line.split()[1:3] for line in lines if line.split() and line.split()[0] in LIMITS}
    assert limits["cpu_time"] == ["120", "s"]
    assert limits["memory"] == ["1.0", "GB"]
    assert limits["processes"][0] == "512"


def test_below_the_level_is_one_with_the_fix_on_stderr_and_the_whole_report(doctor: FlinkSkills) -> None:
    said = doctor("--format", "json", "--set", "skills.shell.backend=hygiene", "--min-level", "namespace")
    assert said.code == 1
    assert said.json["level"] == "HYGIENE"
    assert "isolation level NAMESPACE is not available on this host; the best level is HYGIENE" in said.stderr
    assert "set skills.shell.min-isolation to HYGIENE" in said.stderr
    by_default = doctor("--set", "skills.shell.backend=hygiene")
    assert by_default.code == 1
    assert "isolation level LANDLOCK is not available" in by_default.stderr
    assert doctor("--set", "skills.shell.backend=hygiene", "--set", "skills.shell.min-isolation=HYGIENE").code == 0


def test_a_machine_without_any_isolation_says_why_and_what_it_takes(
    doctor: FlinkSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped = {"bwrap": "clone: not permitted", "landlock": "the kernel has no Landlock", "mine": "\x1b[31mred"}
    reported(monkeypatch, IsolationReport(IsolationLevel.NONE, skipped=skipped))
    said = doctor()
    assert said.code == 1
    assert said.stdout.startswith("NONE: ")
    for reason in ("clone: not permitted", "the kernel has no Landlock", "<U+001B>[31mred"):
        assert reason in said.stdout
    assert "can create user namespaces" in said.stdout
    assert "Linux 5.13" in said.stdout
    assert "set skills.shell.min-isolation to HYGIENE" in said.stderr
    assert "Verified by probes" not in said.stdout
    assert doctor("--min-level", "NONE").code == 0


def test_names_that_another_package_reports_are_shown_too(doctor: FlinkSkills, monkeypatch: pytest.MonkeyPatch) -> None:
    report = IsolationReport(
        IsolationLevel.REMOTE, backend="mine", backend_version="7", proved=("moon_phase",), not_enforced=("sun_set",)
    )
    reported(monkeypatch, report)
    said = doctor("--min-level", "REMOTE")
    assert said.code == 0
    assert "Backend mine (7)" in said.stdout
    assert "Prevented: moon phase." in said.stdout
    assert "Not enforced: sun set." in said.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--min-level", "HIGH"), "--min-level: unknown isolation level 'HIGH': expected one of NONE, HYGIENE"),
        (("--set", "skills.shell.backend=lndlock"), "did you mean 'landlock'?"),
        (("--set", "skills.shell.max-memory=lots"), "cannot use 'lots'"),
        (("--set", "skills.shell.mx-memory=1"), "did you mean 'skills.shell.max-memory'"),
        (("--set", "skills.workspace.inputs=/nowhere/at/all"), "'/nowhere/at/all' does not exist"),
        (("--set", "skills.shell.enabled=false"), "skills.shell.enabled is false"),
        (("--set", "taskmanager.numberOfTaskSlots=2"), "the key must start with 'skills.'"),
        (("--format", "xml"), "--format"),
        (("landlock",), "landlock"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_is_two_and_names_the_fix(doctor: FlinkSkills, words: tuple[str, ...], message: str) -> None:
    said = doctor(*words)
    assert (said.code, said.stdout) == (2, "")
    assert message in said.stderr


def test_without_a_folder_for_workspaces(
    flink_skills: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    said = flink_skills("doctor")
    assert (said.code, said.stdout) == (1, "")
    assert "set TMPDIR" in said.stderr


def test_every_name_has_a_sentence() -> None:
    attempts = {"metadata_outside", *(name for names in REQUIRED.values() for name in names)}
    for name in attempts:
        assert enforced_sentence(name).startswith("A command cannot "), name
        assert gap_sentence(name).startswith("A command can "), name
    for name in backend_choice._KNOWN_GAPS:
        assert not gap_sentence(name).startswith("Not enforced:"), name
    assert gap_sentence("only_as_strong_as_runtime_class:gvisor").endswith("runtime class: gvisor.")
    assert set(LEVELS) == {level.name for level in IsolationLevel}
    assert {limit_text(name, 0) for name in LIMITS} == {"no limit"}


def test_what_keeps_a_backend_from_its_level_is_a_sentence(
    doctor: FlinkSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortfall = "the container refuses a seccomp listener: remove what refuses it"
    report = IsolationReport(IsolationLevel.LANDLOCK_PARTIAL, backend="landlock", shortfall=shortfall)
    reported(monkeypatch, report)
    assert "\nThe container refuses a seccomp listener: remove what refuses it.\n" in doctor().stdout
    assert doctor("--format", "json").json["shortfall"] == shortfall
