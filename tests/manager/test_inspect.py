"""What only reading a skill shows: found once, remembered, and never a reason to take anything down."""

import os
import threading
from pathlib import Path

import pytest

from flink_skills.errors import UnknownNameError
from flink_skills.manager import AgentSkillManager
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from tests.kit.skills import skill_text, write_skill
from tests.manager.writing import zip_bytes


def codes(manager: AgentSkillManager, *names: str) -> list[tuple[str, str]]:
    return [(diagnostic.skill, diagnostic.code) for diagnostic in manager.inspect(list(names) or None)]


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    opened: list[str] = []
    real_open = os.open

    def counting(path: object, *more: object, **named: object) -> int:
        opened.append(str(path))
        return real_open(path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", counting)
    return opened


def test_bodies_are_looked_at_and_what_was_found_is_remembered(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_skill(tree / "long", body="line\n" * 600)
    write_skill(tree / "odd", body="Read [this](references/none.md). <!-- psst -->")
    manager = AgentSkillManager([str(tree)])
    assert manager.diagnostics == []
    found = codes(manager)
    assert ("long", "F17") in found
    assert ("odd", "F19") in found
    assert ("odd", "S06") in found
    assert [(diagnostic.skill, diagnostic.code) for diagnostic in manager.diagnostics] == found
    assert manager.summary()["codes"]["F17"] == 1
    opened = count_reads(monkeypatch)
    assert codes(manager) == found
    assert opened == []


def test_only_the_named_skills_are_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_skill(tree / "long", body="line\n" * 600)
    manager = AgentSkillManager([str(tree)])
    manager.load_skills()
    opened = count_reads(monkeypatch)
    assert codes(manager, "a") == []
    assert {Path(path).parent.name for path in opened} == {"a"}
    assert manager.diagnostics == []
    with pytest.raises(UnknownNameError, match="did you mean 'long'"):
        manager.inspect(["lon"])


def test_after_a_refresh_only_what_changed_is_read_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = AgentSkillManager([str(tree)])
    manager.inspect()
    write_skill(tree / "a", body="line\n" * 600)
    assert manager.refresh() is not None
    opened = count_reads(monkeypatch)
    assert ("a", "F17") in codes(manager)
    assert {Path(path).parent.name for path in opened} <= {"a"}
    write_skill(tree / "a", body="Short again.")
    manager.refresh()
    manager.inspect()
    assert manager.diagnostics == []


def test_a_skill_that_cannot_be_read_is_an_error_and_no_more(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)])
    manager.load_skills()
    write_skill(tree / "a", body="Changed after loading.")
    [found] = manager.inspect()
    assert (found.code, found.severity, found.skill) == ("D05", "error", "a")
    assert "has changed since it was loaded" in found.message
    assert len(manager.get_skills()) == 3
    manager.refresh()
    assert manager.inspect() == []


def test_the_digest_of_a_tree_of_the_store_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, str | bytes] = {"skills/a/SKILL.md": skill_text("a"), "skills/a/big.bin": b"x" * (1 << 20)}
    (tmp_path / "skills.zip").write_bytes(zip_bytes(files))
    manager = AgentSkillManager([str(tmp_path / "skills.zip")], store_dir=str(tmp_path / "store"))
    manager.load_skills()
    opened = count_reads(monkeypatch)
    manager.inspect()
    assert [path for path in opened if path.endswith("big.bin")] == []
    assert manager.view().activate("a").digest == manager.get_skills()[0].digest


@pytest.mark.row("A12")
def test_what_this_runtime_does_not_do_is_said_with_the_reason(tree: Path) -> None:
    (tree / "a" / "SKILL.md").write_text(skill_text("a", body="Say $ARGUMENTS.", more="allowed-tools: WebSearch\n"))
    manager = AgentSkillManager([str(tree)])
    [skill, *_] = manager.get_skills()
    found = manager.check_skill(skill)
    assert found
    assert all(diagnostic.code.startswith("U") and diagnostic.message for diagnostic in found)
    assert "error" not in {diagnostic.severity for diagnostic in found}
    assert any("WebSearch" in diagnostic.message for diagnostic in found)
    assert manager._check_skill(skill) == found
    assert set(found) <= set(manager.inspect(["a"]))
    assert manager.check_skill(AgentSkill("plain", "Does it.", "Do it.")) == []


def test_scripts_are_unsupported_where_commands_are_off(tree: Path) -> None:
    (tree / "a" / "scripts").mkdir()
    (tree / "a" / "scripts" / "run.sh").write_text("echo 1\n")
    with_commands = AgentSkillManager([str(tree)])
    without = AgentSkillManager([str(tree)], config=SkillConfig({"skills.shell.enabled": False}))
    assert with_commands.inspect(["a"]) == []
    assert [diagnostic.code[0] for diagnostic in without.inspect(["a"])] == ["U"]


def test_several_threads_inspect_at_once(tmp_path: Path) -> None:
    for number in range(30):
        write_skill(tmp_path / "s" / f"s{number}", body="line\n" * 501)
    manager = AgentSkillManager([str(tmp_path / "s")])
    results: list[list[tuple[str, str]]] = []
    threads = [threading.Thread(target=lambda: results.append(codes(manager))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(result) for result in results] == [30] * 4
    assert len(manager.diagnostics) == 30
