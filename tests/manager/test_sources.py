"""The manager resolves sources: trees of the store, pins, forms, leases, duplicates, precedence.

Examines the internals of sources.locking on purpose.
"""

import gc
import hashlib
import os
import time
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError
from flink_skills.manager import AgentSkillManager, SkillScope, parse_menu
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceSpec
from flink_skills.sources.locking import unleased
from tests.kit.skills import skill_text, write_skill
from tests.manager.writing import ALLOWED, page, zip_bytes
from tests.sources.web import SKILL, Page, Web


def found(manager: AgentSkillManager) -> list[tuple[str, str]]:
    return [(diagnostic.code, diagnostic.skill) for diagnostic in manager.diagnostics]


def web_manager(web: Web, tmp_path: Path, **scopes: object) -> AgentSkillManager:
    config, store = SkillConfig(ALLOWED), str(tmp_path / "store")
    return AgentSkillManager(config=config, store_dir=store, **scopes)  # type: ignore[arg-type]


# Trees of the store


def test_a_tree_of_the_store_is_read_from_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, str | bytes] = {"skills/bad/SKILL.md": "no front matter"}
    for number in range(3):
        files[f"skills/s{number}/SKILL.md"] = skill_text(f"s{number}", more="version: 1.0\n")
        files[f"skills/s{number}/notes.md"] = "text"
    (tmp_path / "skills.zip").write_bytes(zip_bytes(files))
    store = str(tmp_path / "store")
    cold = AgentSkillManager([str(tmp_path / "skills.zip")], store_dir=store)
    cold.load_skills()
    opened: list[str] = []
    real_open = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **named: opened.append(str(path)) or real_open(path, *more, **named)
    )
    warm = AgentSkillManager([str(tmp_path / "skills.zip")], store_dir=store)
    skills = warm.load_skills()
    digests = [skill.digest for skill in skills]
    assert [path for path in opened if path.endswith("SKILL.md")] == []
    monkeypatch.undo()
    assert digests == [skill.digest for skill in cold.load_skills()]
    assert [(skill.name, skill.description, dict(skill.extra)) for skill in skills] == [
        (skill.name, skill.description, dict(skill.extra)) for skill in cold.load_skills()
    ]
    assert warm.diagnostics == cold.diagnostics
    assert ("F02", "bad") in found(warm)
    folders = [sorted(entry.folder for entry in each._loaded().sources[0].trees[0].entries) for each in (cold, warm)]
    assert folders[0] == folders[1]
    folder = AgentSkillManager([str(skills[0].path)])
    assert folder.load_skills()[0].digest == digests[0]
    assert "Do it." in warm.view().activate("s1").text
    assert warm.view().read_resource("s1", "notes.md").text == "text"


def test_strict_reads_the_files_and_finds_the_same_skills(tmp_path: Path) -> None:
    (tmp_path / "skills.zip").write_bytes(zip_bytes({"skills/a/SKILL.md": skill_text("a")}))
    path, store = str(tmp_path / "skills.zip"), str(tmp_path / "store")
    lenient, strict = (AgentSkillManager([path], store_dir=store, strict=strict) for strict in (False, True))
    assert [skill.digest for skill in lenient.load_skills()] == [skill.digest for skill in strict.load_skills()]
    assert strict.diagnostics == []


def test_a_file_of_the_store_that_was_tampered_with_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "skills.zip").write_bytes(zip_bytes({"skills/a/SKILL.md": skill_text("a"), "skills/a/n.md": "text"}))
    manager = AgentSkillManager([str(tmp_path / "skills.zip")], store_dir=str(tmp_path / "store"))
    [skill] = manager.load_skills()
    notes = Path(skill.path or "") / "n.md"
    notes.chmod(0o644)
    notes.write_text("other")
    with pytest.raises(Exception, match=r"'n\.md' has changed"):
        manager.view().read_resource("a", "n.md")
    assert "Do it." in manager.view().activate("a").text


def test_leases_last_as_long_as_somebody_uses_the_generation(tmp_path: Path) -> None:
    path, store = tmp_path / "skills.zip", tmp_path / "store"

    def is_free(folder: Path) -> bool:
        gc.collect()
        with unleased(str(folder)) as free:
            return free

    def tree_of(manager: AgentSkillManager) -> Path:
        return store / Path(manager.load_skills()[0].path or "").relative_to(store).parts[0]

    path.write_bytes(zip_bytes({"a/SKILL.md": skill_text("a", body="One.")}))
    manager = AgentSkillManager([str(path)], store_dir=str(store))
    old = manager.view()
    first = tree_of(manager)
    assert not is_free(first)
    assert manager.refresh() is None
    path.write_bytes(zip_bytes({"a/SKILL.md": skill_text("a", body="Two.")}))
    assert manager.refresh() is not None
    second = tree_of(manager)
    assert first != second
    assert not is_free(first)
    assert "One." in old.activate("a").text
    del old
    assert is_free(first)
    assert not is_free(second)
    last = manager.view()
    manager.close()
    assert is_free(second)
    assert len(last) == 1


# Declarations


def test_sources_may_be_texts_mappings_and_specs(web: Web, tmp_path: Path) -> None:
    data = zip_bytes({"skills/a/SKILL.md": skill_text("a")})
    web.pages["/a.zip"] = page(data)
    pin = hashlib.sha256(data).hexdigest()
    url = f"{web.url}/a.zip"
    for item in ({"url": url, "sha256": pin}, SourceSpec("url", url, pin), f"{url}#sha256={pin}"):
        scope = SkillScope("job", urls=[item])  # type: ignore[list-item]
        assert scope.to_json()["urls"] == [f"{url}#sha256={pin}"]
        assert scope.urls == (SourceSpec("url", url, pin),)
        assert SkillScope.from_json(scope.to_json()) == scope
        with web_manager(web, tmp_path, urls=[item]) as manager:
            assert [skill.name for skill in manager.load_skills()] == ["a"]
    with web_manager(web, tmp_path, urls=[{"url": url, "sha256": "0" * 64}]) as manager:
        assert manager.load_skills() == []
        assert "sha256" in str(manager.failures[0])
    with pytest.raises(ConfigError, match="must be a list"):
        SkillScope("job", urls={"url": url})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a list") as error:
        SkillScope("job", urls="https://x/y?token=hush")
    assert "hush" not in str(error.value)


def test_managers_of_one_opening_share_what_a_server_without_versions_gave(web: Web, tmp_path: Path) -> None:
    web.pages["/SKILL.md"] = Page(SKILL)  # neither ETag nor a time
    url = f"{web.url}/SKILL.md"
    config, store = SkillConfig(ALLOWED), str(tmp_path / "store")
    opened = time.time()
    for begun in (opened, opened):
        with AgentSkillManager(urls=[url], config=config, store_dir=store, opened=begun) as manager:
            assert [skill.name for skill in manager.load_skills()] == ["greet"]
    assert web.count("GET") == 1
    with AgentSkillManager(urls=[url], config=config, store_dir=store) as manager:
        manager.load_skills()
    assert web.count("GET") == 2


@pytest.mark.row("A10")
def test_the_heading_form_is_taken_where_a_source_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "notes" / "git").mkdir(parents=True)
    (tmp_path / "notes" / "git" / "SKILL.md").write_text("# Works with git\n\nRun git.\n")
    plain = AgentSkillManager([str(tmp_path / "notes")])
    assert plain.load_skills() == []
    manager = AgentSkillManager([{"path": str(tmp_path / "notes"), "format": "heading"}])
    assert parse_menu(manager.get_system_prompt()) == [("git", "Works with git")]
    (tmp_path / "n.zip").write_bytes(zip_bytes({"notes/git/SKILL.md": "# Works with git\n\nRun git.\n"}))
    zipped = AgentSkillManager([f"{tmp_path}/n.zip#format=heading"], store_dir=str(tmp_path / "store"))
    assert [skill.digest for skill in zipped.load_skills()] == [skill.digest for skill in manager.load_skills()]


@pytest.mark.row("A12")
def test_the_steps_of_loading_give_the_skills_of_one_kind(tree: Path, tmp_path: Path) -> None:
    write_skill(tmp_path / "jar" / "r")
    manager = AgentSkillManager(resource_paths={"skills": [str(tmp_path / "jar")]})
    assert [skill.name for skill in manager._load_skills_from_paths([str(tree)])] == ["a", "b", "c"]
    assert [skill.name for skill in manager._load_skills_from_resources(["skills"])] == ["r"]
    assert [skill.name for skill in manager._load_skills_from_urls([f"file://{tree}/a"])] == ["a"]
    assert manager.load_skills() == []


# Sources without skills, failing sources


def test_a_source_without_any_skill_is_reported_once(tmp_path: Path) -> None:
    for name in ("empty", "one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "empty.zip").write_bytes(zip_bytes({"docs/readme.md": "nothing"}))
    store = str(tmp_path / "store")
    manager = AgentSkillManager([str(tmp_path / "empty"), str(tmp_path / "empty.zip")], store_dir=store)
    assert found(manager) == [("D04", ""), ("D04", "")]
    assert all("empty" in diagnostic.message for diagnostic in manager.diagnostics)
    assert manager.failures == []
    both = {"skills": [str(tmp_path / "one"), str(tmp_path / "two")]}
    assert found(AgentSkillManager(resources=["skills"], resource_paths=both)) == [("D04", "")]
    write_skill(tmp_path / "two" / "a")
    assert found(AgentSkillManager(resources=["skills"], resource_paths=both)) == []


def test_a_refused_archive_refuses_its_whole_source(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(
        zip_bytes({"skills/good/SKILL.md": skill_text("good"), "../evil/SKILL.md": skill_text("evil")})
    )
    manager = AgentSkillManager([str(tmp_path / "bad.zip"), str(tree)], store_dir=str(tmp_path / "store"))
    assert [skill.name for skill in manager.load_skills()] == ["a", "b", "c"]
    assert [diagnostic.code for diagnostic in manager.diagnostics] == ["D06"]
    assert "bad.zip" in manager.diagnostics[0].message
    assert not (tmp_path / "evil").exists()
    assert [path for path in (tmp_path / "store").iterdir() if not path.name.startswith(".")] == []


# Equal names


def test_a_name_that_is_twice_in_a_source_is_listed_once_and_reported(tmp_path: Path) -> None:
    write_skill(tmp_path / "s" / "one", name="same", description="First.")
    write_skill(tmp_path / "s" / "two", name="same", description="Second.")
    manager = AgentSkillManager([str(tmp_path / "s")])
    assert parse_menu(manager.get_system_prompt()) == [("same", "First.")]
    [report] = [diagnostic for diagnostic in manager.diagnostics if diagnostic.code == "D02"]
    assert (report.severity, report.path) == ("warning", str(tmp_path / "s" / "two"))
    assert str(tmp_path / "s" / "one") in report.message
    assert "the first skill of a source takes precedence" in report.message


def test_byte_identical_duplicates_are_an_info_and_others_that_look_alike_are_not(tmp_path: Path) -> None:
    for place in ("s", "t", "u"):
        write_skill(tmp_path / place / "same")
        (tmp_path / place / "same" / "run.sh").write_text("echo u" if place == "u" else "echo s")
    manager = AgentSkillManager([str(tmp_path / place) for place in "stu"])
    reports = [(diagnostic.code, diagnostic.severity, diagnostic.path) for diagnostic in manager.diagnostics]
    paths = [str(tmp_path / place / "same") for place in "tu"]
    assert reports == [("D03", "info", paths[0]), ("D02", "warning", paths[1])]


def test_a_name_that_looks_like_another_one_replaces_no_skill(tmp_path: Path) -> None:
    twins = ["\uff52eport", "re\u200bport", "report\U000e0041", "report\u00a0", "rep\u043ert", "Report"]
    for number, name in enumerate(["report", *twins]):
        write_skill(tmp_path / str(number) / "f", name=name, description=f"Source {number}.")
    manager = AgentSkillManager([str(tmp_path / str(number)) for number in range(7)])
    first = manager.view().get("report")
    assert first is not None and first.description == "Source 0."
    # Names with hidden or wide characters become equal and are not used. Another letter makes another skill.
    assert {skill.name for skill in manager.load_skills()} == {"report", "rep\u043ert", "Report"}
    assert [report.code for report in manager.diagnostics].count("D02") == 4


@pytest.mark.row("B2")
def test_a_root_inside_another_one_adds_nothing(tree: Path) -> None:
    manager = AgentSkillManager([str(tree), str(tree / "a")])
    assert len(manager.load_skills()) == 3
    assert found(manager) == [("D03", "a")]


@pytest.mark.row("A5")
def test_the_same_folder_at_both_levels_is_one_source(tree: Path) -> None:
    scopes = [SkillScope("job", [str(tree)]), SkillScope("agent", [f"{tree}/"])]
    manager = AgentSkillManager.from_scopes(scopes)
    assert len(manager.load_skills()) == 3
    assert manager.diagnostics == []


def test_a_remote_skill_never_replaces_a_local_one_silently(web: Web, tmp_path: Path) -> None:
    web.pages["/r.zip"] = page(zip_bytes({"skills/x/SKILL.md": skill_text("x", "Remote.")}))
    write_skill(tmp_path / "local" / "x", description="Local.")
    url, path = f"{web.url}/r.zip", str(tmp_path / "local")
    config, store = SkillConfig(ALLOWED), str(tmp_path / "store")

    def manager(*scopes: SkillScope) -> AgentSkillManager:
        return AgentSkillManager.from_scopes(scopes, config=config, store_dir=store)

    # Within a level a local one wins, whatever was declared first.
    with manager(SkillScope("job", urls=[url]), SkillScope("job", [path])) as first:
        assert [skill.description for skill in first.load_skills()] == ["Local."]
        [report] = first.diagnostics
        assert (report.code, report.severity) == ("D02", "warning")
        assert "local sources take precedence over network sources" in report.message
    # The agent's wins over the job's, and it is said that it is the remote one.
    with manager(SkillScope("job", [path]), SkillScope("agent", urls=[url])) as second:
        assert [skill.description for skill in second.load_skills()] == ["Remote."]
        [report] = second.diagnostics
        assert "even if they are remote" in report.message


# Menu


def test_remote_skills_show_where_they_are_from(web: Web, tree: Path, tmp_path: Path) -> None:
    web.pages["/r.zip"] = page(zip_bytes({"skills/x/SKILL.md": skill_text("x", "Remote.")}))
    shown = f"{web.url}/r.zip"
    with web_manager(web, tmp_path, paths=[str(tree)], urls=[f"{shown}?token=hush"]) as manager:
        menu = manager.get_system_prompt()
        assert "hush" not in menu
        assert f"- x: Remote. <origin>{shown}</origin>\n" in menu
        assert menu.count("<origin>") == 1
        assert parse_menu(menu) == [("a", "Does a."), ("b", "Does b."), ("c", "Does c."), ("x", "Remote.")]


def test_summary_counts_what_there_is(tree: Path, tmp_path: Path) -> None:
    write_skill(tree / "d", name="Not-D")
    manager = AgentSkillManager([str(tree), str(tmp_path / "missing")])
    summary = manager.summary()
    assert (summary["skills"], summary["sources"], summary["failed_sources"]) == (4, 2, 1)
    assert summary["errors"] == 1
    assert summary["warnings"] == sum(diagnostic.severity == "warning" for diagnostic in manager.diagnostics) > 0
    assert sum(summary["codes"].values()) == len(manager.diagnostics)
    assert summary["codes"]["D06"] == 1


def test_limits_are_those_of_the_options(tree: Path) -> None:
    config = SkillConfig({"skills.limits.skill-file": "70", "skills.limits.resource-read": "8"})
    write_skill(tree / "long", body="x" * 100)
    (tree / "a" / "notes.md").write_text("0123456789")
    manager = AgentSkillManager([str(tree)], config=config)
    assert found(manager) == [("S05", "long")]
    page_read = manager.view().read_resource("a", "notes.md")
    assert (page_read.text, page_read.next_offset) == ("01234567", 8)
