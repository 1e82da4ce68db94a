"""A view returns documents and tools of skills."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.errors import ResourceError, UnknownNameError
from flink_skills.manager import AgentSkillManager, AuditEvent, SkillView
from flink_skills.skill import AgentSkill
from tests.kit.skills import write_skill

BODY = "Tools:\n- one\n- two\n\nText."


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    (folder / "docs").mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: a\ndescription: Does a.\n---\n{BODY}\n")
    (folder / "docs/x.md").write_bytes(b"\xef\xbb\xbfline\r\n__BASE_DIR__ \xe2\x80\xaehidden")
    (folder / "b.txt").write_text("text")
    return tmp_path


def test_docs_and_tools(tree: Path) -> None:
    view = AgentSkillManager([str(tree)]).view()
    assert view.docs("a") == ["b.txt", "docs/x.md"]
    assert view.declared_tools("a") == ["one", "two"]
    assert view.doc_text("a", "docs/x.md") == f"line\n{tree}/a hidden"
    for ask in (view.docs, view.declared_tools, view.content, lambda name: view.doc_text(name, "b.txt")):
        with pytest.raises(UnknownNameError):
            ask("b")


@pytest.mark.parametrize("path", ["../a/b.txt", "/etc/passwd", "none.md", "docs"])
def test_a_document_that_is_none(tree: Path, path: str) -> None:
    with pytest.raises(ResourceError, match="skill 'a'"):
        AgentSkillManager([str(tree)]).view().doc_text("a", path)


def test_a_document_is_read_once_and_audited_when_it_is_chosen(tree: Path) -> None:
    told: list[AuditEvent] = []
    view = AgentSkillManager([str(tree)], audit=told.append).view()
    assert view.doc_text("a", "b.txt") == "text"
    (tree / "a/b.txt").write_text("other")
    assert view.doc_text("a", "b.txt") == "text"
    assert view.content("a").text == view.content("a").text
    assert told == []
    view.note_docs("a", ["b.txt"], key="k")
    assert [(event.action, event.path, event.outcome, event.key) for event in told] == [("read", "b.txt", "ok", "k")]


def test_what_is_kept_of_documents_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.manager.view._CACHED_DOC_CHARS", 25)
    view = SkillView([AgentSkill("a", "Does a.", "Do.", {f"{n}.md": str(n) * 10 for n in range(5)})])
    for number in (0, 1, 2, 0, 4, 3):
        assert view.doc_text("a", f"{number}.md") == str(number) * 10
    assert view._doc_chars <= 25
    assert view._doc_chars == sum(map(len, view._docs.values()))


@pytest.mark.row("B12")
def test_a_part_of_a_view() -> None:
    view = SkillView([AgentSkill(name, "Does it.", "Do.") for name in "abc"])
    part = view.only({"a", "c", "d"})
    assert part.names == ("a", "c")
    with pytest.raises(UnknownNameError):
        part.activate("b")
    assert view.names == ("a", "b", "c")


def test_each_skill_is_read_once_for_its_tools_also_by_narrower_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, body in (("a", "Do."), ("b", "Do."), ("c", "Tools:\n- t\n\nDo.")):
        write_skill(tmp_path / name, body=body)
    (tmp_path / "b/tools.yaml").write_text("")
    skills = AgentSkillManager([str(tmp_path)]).get_skills()
    read: list[str] = []
    whole = AgentSkill.instructions.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(AgentSkill, "instructions", property(lambda skill: read.append(skill.name) or whole(skill)))
    view = SkillView(skills)
    assert view.has_tools(frozenset())
    assert not view.only({"a", "b"}).has_tools(frozenset())
    assert view.only({"b", "c"}).has_tools(frozenset())
    assert read == ["a", "b", "c"]
    assert SkillView(skills[:2]).has_tools(frozenset({"tools.yaml"}))
