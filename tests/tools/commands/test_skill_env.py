from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig
from flink_skills.tools.commands import HiddenValues, SkillVariables


def variables(hidden: HiddenValues | None = None, **references: str) -> SkillVariables:
    config = SkillConfig({f"skills.env.{name.replace('__', '.')}": text for name, text in references.items()})
    return SkillVariables(config, hidden or HiddenValues())


@pytest.mark.row("B20")
def test_each_skill_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONE", "first")
    (tmp_path / "two").write_text("second\n")
    found = variables(
        report__A="${env:ONE}", report__B=f"${{file:{tmp_path}/two}}", other__A=f"${{file:{tmp_path}/two}}"
    )
    assert found.values("report") == {"A": "first", "B": "second"}
    assert found.values("other") == {"A": "second"}
    assert found.values("third") == found.values(None) == {}
    assert "report" in found and "third" not in found and None not in found


def test_a_skills_name_may_hold_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "first")
    found = SkillVariables(SkillConfig({"skills.env.a.b.C_D": "${env:ONE}"}), HiddenValues())
    assert found.values("a.b") == {"C_D": "first"}


def test_values_are_read_at_each_use_and_hidden(tmp_path: Path) -> None:
    hidden = HiddenValues()
    secret = tmp_path / "token"
    found = variables(hidden, report__A=f"${{file:{secret}}}")
    secret.write_text("old-token")
    assert hidden.in_text("old-token") == "old-token"
    assert found.values("report") == {"A": "old-token"}
    secret.write_text("new-token")
    assert found.values("report") == {"A": "new-token"}
    assert hidden.in_text("old-token new-token") == "[hidden] [hidden]"


def test_what_cannot_be_read_names_the_option_and_no_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    (tmp_path / "binary").write_bytes(b"s3cret\0s3cret")
    for reference, says in (
        ("${env:NOT_THERE}", "'NOT_THERE'"),
        (f"${{file:{tmp_path}/none}}", "does not exist"),
        (f"${{file:{tmp_path}/binary}}", "NUL"),
    ):
        with pytest.raises(ConfigError) as caught:
            variables(report__A=reference).values("report")
        assert "option skills.env.report.A: " in str(caught.value)
        assert says in str(caught.value)
        assert "s3cret" not in str(caught.value) + caplog.text
    assert "option skills.env.report.A: the environment variable 'NOT_THERE'" in caplog.text


@pytest.mark.row("B20")
@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "BASH_ENV", "NODE_OPTIONS"])
def test_names_that_change_what_programs_run_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"option skills\.env\.report\.{name}: .* choose another name"):
        variables(**{f"report__{name}": "${env:X}"})


@pytest.mark.parametrize("name", ["PATH", "HOME", "WORK_DIR", "SKILL_NAME", "FLINK_SKILLS_CALL_ID"])
def test_names_of_the_workspace_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"option skills\.env\.report\.{name}: {name} is set for every command"):
        variables(**{f"report__{name}": "${env:X}"})


def test_all_names_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        variables(report__LD_PRELOAD="${env:X}", report__A="${env:X}", other__HOME="${env:X}")
    message = str(caught.value)
    assert "option skills.env.report.LD_PRELOAD: 'LD_PRELOAD' is never passed on" in message
    assert "; option skills.env.other.HOME: HOME is set for every command" in message


@pytest.mark.parametrize("name", ["A-B", "1A", "A B", "Ä"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid name of a variable"):
        variables(**{f"report__{name}": "${env:X}"})
