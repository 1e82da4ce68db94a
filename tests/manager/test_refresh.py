"""Refresh: what is seen, what it costs, and what those keep who began before.

Examines the internals of skill.file_rules on purpose.
"""

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from flink_skills.errors import ResourceError, UnknownNameError
from flink_skills.manager import AgentSkillManager, Refreshed, SkillLock, parse_menu
from flink_skills.options import SkillConfig
from flink_skills.skill import file_rules
from tests.kit.skills import skill_text, write_skill
from tests.manager.writing import ALLOWED, page, zip_bytes
from tests.sources.web import Page, Web


def archive(**bodies: str) -> bytes:
    return zip_bytes({f"{name}/SKILL.md": skill_text(name, body=body) for name, body in bodies.items()})


def from_web(web: Web, tmp_path: Path, **options: object) -> AgentSkillManager:
    config = SkillConfig({**ALLOWED, **options})
    return AgentSkillManager(urls=[f"{web.url}/skills.zip"], config=config, store_dir=str(tmp_path / "store"))


def test_nothing_changed_is_none_and_reads_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = AgentSkillManager([str(tree)])
    assert manager.generation == 0
    before = manager.load_skills()
    view = manager.view()
    assert manager.generation == 1
    opened = []
    real_open = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **options: opened.append(path) or real_open(path, *more, **options)
    )
    assert manager.refresh() is None
    assert opened == []
    assert manager.generation == 1
    assert all(one is other for one, other in zip(before, manager.load_skills(), strict=True))
    assert manager.view().names == view.names


@pytest.mark.row("B2", "B17")
def test_what_changed_is_named(tree: Path) -> None:
    (tree / "b" / "run.sh").write_text("echo 1\n")
    manager = AgentSkillManager([str(tree)])
    manager.inspect()
    write_skill(tree / "d")
    (tree / "b" / "run.sh").write_text("echo two\n")
    (tree / "c" / "SKILL.md").unlink()
    assert manager.refresh() == Refreshed(2, added=("d",), removed=("c",), changed=("b",))
    assert [skill.name for skill in manager.get_skills()] == ["a", "b", "d"]
    assert manager.generation == 2
    assert manager.refresh() is None
    with pytest.raises(UnknownNameError):
        manager.view(["c"])


def test_a_skill_nobody_has_read_is_seen_to_change_too(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)])
    manager.load_skills()
    write_skill(tree / "a", description="Does more.")
    assert manager.refresh() == Refreshed(2, (), (), ("a",))
    assert parse_menu(manager.get_system_prompt(["a"])) == [("a", "Does more.")]


def test_only_the_digest_says_that_a_skill_changed(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)])
    manager.inspect()
    view = manager.view()
    first = view.activate("a")
    text = (tree / "a" / "SKILL.md").read_bytes()
    (tree / "a" / "SKILL.md").write_bytes(text)
    (tree / "a" / "new").touch()
    (tree / "a" / "new").unlink()
    os.utime(tree / "b" / "SKILL.md")
    assert manager.refresh() is None
    assert manager.generation == 1
    assert view.activate("a") == first
    assert manager.view().activate("a") == first
    write_skill(tree / "a", body="Something else.")  # and it is still seen
    assert manager.refresh() == Refreshed(2, (), (), ("a",))


def test_an_old_view_gives_an_error_for_what_was_overwritten_and_never_new_content(tree: Path) -> None:
    (tree / "a" / "notes.md").write_text("old notes")
    manager = AgentSkillManager([str(tree)])
    manager.load_skills()
    old = manager.view()
    assert old.read_resource("a", "notes.md").text == "old notes"
    write_skill(tree / "a", body="Something new.")  # its digest is known
    (tree / "a" / "notes.md").write_text("newer notes")
    write_skill(tree / "b", body="Something new too.")  # nobody has read it
    for _ in range(2):
        for name in ("a", "b"):
            with pytest.raises(ResourceError, match="has changed since"):
                old.activate(name)
        with pytest.raises(ResourceError, match=r"skill 'a': 'notes\.md' has changed since"):
            old.read_resource("a", "notes.md")
        manager.refresh()
    assert manager.generation == 2
    assert "Something new." in manager.view().activate("a").text
    assert manager.view().read_resource("a", "notes.md").text == "newer notes"
    assert "Do it." in old.activate("c").text
    assert parse_menu(old.menu())[0] == ("a", "Does a.")


def test_a_skill_may_hold_a_link_to_itself(tmp_path: Path) -> None:
    write_skill(tmp_path / "a")
    (tmp_path / "a" / "loop").symlink_to("loop")
    manager = AgentSkillManager([str(tmp_path)])
    assert "Do it." in manager.view().activate("a").text
    assert manager.refresh() is None


def test_a_file_may_go_while_its_folder_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_skill(tmp_path / "a")
    (tmp_path / "a" / "going.md").write_text("x")
    manager = AgentSkillManager([str(tmp_path)])
    manager.inspect()

    def list_and_remove(folder: str) -> contextlib.AbstractContextManager[list[os.DirEntry[str]]]:
        entries = list(os.scandir(folder))
        (tmp_path / "a" / "going.md").unlink(missing_ok=True)
        return contextlib.nullcontext(entries)

    monkeypatch.setattr(file_rules, "os", SimpleNamespace(**{**vars(os), "scandir": list_and_remove}))
    assert manager.refresh() == Refreshed(2, (), (), ("a",))


def test_a_skill_that_was_removed_is_said_to_be_removed(tmp_path: Path) -> None:
    write_skill(tmp_path / "a")
    view = AgentSkillManager([str(tmp_path)]).view()
    view.activate("a")
    (tmp_path / "a" / "SKILL.md").unlink()
    with pytest.raises(ResourceError, match="was removed since the skill was loaded"):
        view.activate("a")


def test_a_link_that_is_turned_leaves_old_views_their_content(tmp_path: Path) -> None:
    write_skill(tmp_path / "v1" / "a", body="Version one.")
    write_skill(tmp_path / "v1" / "same")
    write_skill(tmp_path / "v2" / "a", body="Version two.")
    write_skill(tmp_path / "v2" / "same")
    current = tmp_path / "current"
    current.symlink_to("v1")
    manager = AgentSkillManager([str(current)])
    old = manager.view()
    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").replace(current)
    assert manager.refresh() == Refreshed(2, (), (), ("a",))
    assert "Version one." in old.activate("a").text
    assert "Version two." in manager.view().activate("a").text


def test_an_archive_that_changed_leaves_old_views_their_content(tmp_path: Path) -> None:
    path = tmp_path / "skills.zip"
    path.write_bytes(archive(a="One.", b="Same."))
    manager = AgentSkillManager([str(path)], store_dir=str(tmp_path / "store"))
    old = manager.view()
    path.write_bytes(archive(a="Two.", b="Same.", c="New."))
    assert manager.refresh() == Refreshed(2, ("c",), (), ("a",))
    assert "One." in old.activate("a").text
    assert "Two." in manager.view().activate("a").text
    assert old.activate("b").digest == manager.view().activate("b").digest
    path.write_bytes(archive(b="Same.", a="Two.", c="New."))  # other bytes, the same skills
    assert manager.refresh() is None
    assert "Two." in manager.view().activate("a").text


@pytest.mark.row("B17")
def test_a_url_is_asked_and_fetched_only_when_it_changed(web: Web, tmp_path: Path) -> None:
    web.pages["/skills.zip"] = page(archive(a="One."))
    with from_web(web, tmp_path) as manager:
        old = manager.view()
        fetched = web.count("GET")
        assert manager.refresh() is None
        assert web.count("GET") == fetched
        web.pages["/skills.zip"] = page(archive(a="Two."))
        assert manager.refresh() == Refreshed(2, (), (), ("a",))
        assert web.count("GET") == fetched + 1
        assert "One." in old.activate("a").text
        assert "Two." in manager.view().activate("a").text


def test_a_source_that_fails_keeps_its_skills_and_says_so(web: Web, tree: Path, tmp_path: Path) -> None:
    web.pages["/skills.zip"] = page(archive(z="One."))
    config = SkillConfig({**ALLOWED, "skills.source.timeout": "2 s"})
    urls, store = [f"{web.url}/skills.zip?token=hush"], str(tmp_path / "store")
    manager = AgentSkillManager([str(tree)], urls=urls, config=config, store_dir=store)
    manager.check_sources()
    web.pages["/skills.zip"] = Page(status=404)
    write_skill(tree / "d")
    assert manager.refresh() == Refreshed(2, ("d",), (), ())
    assert [skill.name for skill in manager.get_skills()] == ["a", "b", "c", "d", "z"]
    [failure] = manager.failures
    assert "skills.zip" in str(failure)
    assert "hush" not in str(failure) + str(manager.diagnostics)
    assert manager.summary()["failed_sources"] == 1
    assert "One." in manager.view().activate("z").text
    assert manager.refresh() is None
    web.pages["/skills.zip"] = page(archive(z="Two."))
    assert manager.refresh() == Refreshed(3, (), (), ("z",))
    assert manager.failures == []
    manager.close()


def test_a_source_that_comes_later_is_taken_up(tree: Path, tmp_path: Path) -> None:
    manager = AgentSkillManager([str(tree), str(tmp_path / "later")])
    assert len(manager.failures) == 1
    write_skill(tmp_path / "later" / "z")
    assert manager.refresh() == Refreshed(2, ("z",), (), ())
    assert manager.failures == []
    assert manager.diagnostics == []


def test_a_skill_that_becomes_bad_goes_and_comes_back(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)])
    manager.inspect()
    good = (tree / "a" / "SKILL.md").read_text()
    (tree / "a" / "SKILL.md").write_text("not a skill")
    assert manager.refresh() == Refreshed(2, (), ("a",), ())
    assert [diagnostic.code for diagnostic in manager.diagnostics] == ["F02"]
    (tree / "a" / "SKILL.md").write_text(good)
    assert manager.refresh() == Refreshed(3, ("a",), (), ())


def test_strict_refuses_a_refresh_and_keeps_what_it_had(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)], strict=True)
    manager.load_skills()
    write_skill(tree / "d", name="Not-D")
    write_skill(tree / "e")
    assert manager.refresh() is None
    assert [skill.name for skill in manager.get_skills()] == ["a", "b", "c"]
    assert manager.generation == 1
    assert "Not-D" in str(manager.failures[0])
    assert [diagnostic.severity for diagnostic in manager.diagnostics] == ["error"]
    write_skill(tree / "d")
    assert manager.refresh() == Refreshed(2, ("d", "e"), (), ())
    assert manager.failures == manager.diagnostics == []


def test_the_lock_refuses_a_refresh_and_keeps_what_it_had(tree: Path) -> None:
    lock = SkillLock.of(AgentSkillManager([str(tree)]).load_skills())
    manager = AgentSkillManager([str(tree)], lock=lock)
    view = manager.view()
    write_skill(tree / "a", body="Not what was locked.")
    for _ in range(2):
        assert manager.refresh() is None
        [failure] = manager.failures
        assert "skill 'a' of" in str(failure)
        assert lock.skills["a"]["digest"] in str(failure)
        with pytest.raises(ResourceError, match="has changed"):
            manager.view().activate("a")
    assert manager.view() is view
    assert "Do it." in view.activate("b").text
    write_skill(tree / "a", description="Does a.")
    assert manager.refresh() is None
    assert manager.failures == []
    assert "Do it." in manager.view().activate("a").text


def test_views_stay_the_same_object_until_something_changes(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)])
    assert manager.view(["a", "b"]) is manager.view(["b", "a", "a"])
    assert manager.view() is manager.view()
    assert manager.view() is not manager.view(["a", "b", "c"])
    before = manager.view()
    write_skill(tree / "d")
    manager.refresh()
    assert manager.view() is not before
    assert before.names == ("a", "b", "c")


def test_turns_and_refreshes_at_the_same_time(tmp_path: Path) -> None:
    """What a thread sees of a skill is of one version, whatever the refreshing thread does meanwhile."""
    path = tmp_path / "skills.zip"
    digests = {}
    versions = [archive(a=f"Version {number}.", b="Same.") for number in range(4)]
    path.write_bytes(versions[0])
    problems: list[object] = []
    stop = threading.Event()
    with AgentSkillManager([str(path)], store_dir=str(tmp_path / "store")) as manager:
        manager.load_skills()

        def turns() -> None:
            while not stop.is_set():
                view = manager.view()
                activation = view.activate("a")
                body = view.read_resource("a", "SKILL.md").text
                number = activation.text.partition("Version ")[2][:1]
                if (
                    f"Version {number}." not in body
                    or digests.setdefault(number, activation.digest) != activation.digest
                ):
                    problems.append((activation, body))
                if not parse_menu(view.menu()):
                    problems.append(view.menu())

        threads = [threading.Thread(target=turns) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(1, 9):
            new = tmp_path / "new"
            new.write_bytes(versions[number % 4])
            new.replace(path)
            assert manager.refresh() == Refreshed(number + 1, (), (), ("a",))
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(versions[0]).digest()


def test_refreshes_one_after_another(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)])
    manager.load_skills()
    write_skill(tree / "d")
    results: list[Refreshed | None] = []
    threads = [threading.Thread(target=lambda: results.append(manager.refresh())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result for result in results if result] == [Refreshed(2, ("d",), (), ())]


def test_after_close_there_is_no_refresh_and_what_is_loaded_stays(tree: Path) -> None:
    with AgentSkillManager([str(tree)]) as manager:
        manager.load_skills()
    manager.close()
    write_skill(tree / "d")
    assert manager.refresh() is None
    assert len(manager.get_skills()) == 3
