"""The snapshot of the public surface."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks import api


@pytest.mark.each_python
def test_the_surface_is_that_of_the_snapshot() -> None:
    changes = api.difference(api.LIST.read_text().splitlines()[1:], api.surface())
    assert not changes, "write a line for users in CHANGELOG.md, and run: python -m checks.api --write"


def test_a_change_is_shown_and_needs_a_line_in_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["command run --local", "error TurnError(SkillsError)"]
    monkeypatch.setattr(api, "surface", lambda: lines)
    monkeypatch.setattr(api, "LIST", tmp_path / "api.txt")
    monkeypatch.setattr(api, "CHANGELOG", tmp_path / "CHANGELOG.md")
    api.CHANGELOG.write_text("- One.\n")
    assert api.main(["--write"]) == 0
    assert api.main([]) == 0
    lines[0] = "command run --fast"
    capsys.readouterr()
    assert api.main([]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == ["- command run --local", "+ command run --fast"]
    assert api.main(["--write"]) == 1
    assert "the changelog is as it was" in capsys.readouterr().out
    api.CHANGELOG.write_text("- One.\n- `run` has `--fast`.\n")
    assert api.main(["--write"]) == 0
    assert api.main([]) == 0


def test_names_options_keys_commands_metrics_and_columns_are_in_the_surface() -> None:
    found = api.surface()
    for line in (
        "flink_skills.AgentContext.step(self, name: 'str', fn: 'Callable[..., Any]', *args: 'Any',",
        "option skills.turn.max-steps: number, 1 or more = ",
        "job file agents",
        "command turns --follow",
        "metric turns counter subtask",
        "event column cost DOUBLE since version 1",
        "event kind retry",
        "error TurnError(SkillsError)",
    ):
        assert any(each.startswith(line) for each in found), line
